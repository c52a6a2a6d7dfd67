"""One file for each mechanism; this one knows them by name."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from turnout.algorithm.mechanism import Mechanism
from turnout.algorithm.mechanisms.classical import Classical
from turnout.algorithm.mechanisms.paper_coin import PaperCoin
from turnout.errors import invalid
from turnout.settings import Table

MECHANISMS: dict[str, type[Mechanism]] = {kind.kind: kind for kind in (Classical, PaperCoin)}


def mechanism_from_settings(table: Table) -> Mechanism:
    """A mechanism from its table: `kind`, and its parameters by name (a number, or one a client).

    Example:
        >>> mechanism_from_settings(Table({"kind": "paper-coin", "beta": 3.5}))
        PaperCoin(beta=3.5)
    """
    kind = table.text("kind")
    if kind not in MECHANISMS:
        raise invalid(table.path("kind"), f"one of {', '.join(MECHANISMS)}", f"{kind!r}", "use one of these names")
    values = {}
    for field in fields(MECHANISMS[kind]):  # type: ignore[arg-type]
        value = table.take(field.name, (int, float, list, np.ndarray), "a number, or a list with one a client")
        values[field.name] = np.array(value, dtype=np.float64) if isinstance(value, list) else value
    table.finish()
    return MECHANISMS[kind](**values)
