"""The two costs that reports tell apart best."""

from turnout.audit.reporters import usual_costs

EXTREMES = {name: usual_costs()[name] for name in ("cheap", "dear")}
