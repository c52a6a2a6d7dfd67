"""The two costs that reports tell apart best."""

from turnout.audit import usual_costs

EXTREMES = {name: usual_costs()[name] for name in ("cheap", "expensive")}
