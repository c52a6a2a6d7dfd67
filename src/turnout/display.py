"""How results are shown: one line in a terminal, a small table in a notebook.

Neither lists an array, and neither contains what is private to clients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

_NAME = "text-align:left;font-weight:normal;opacity:0.7;padding:1px 16px 1px 0"
_VALUE = "text-align:left;padding:1px 0"


def card(title: str, facts: Mapping[str, object]) -> str:
    """A small HTML table, one row per fact, for `_repr_html_`; it takes its colours from the page, light or dark.

    Args:
        title: what it is.
        facts: texts and numbers by name; None is left out.

    Example:
        >>> "<td" in card("Optimum", {"cost": 3.5}), "&lt;b&gt;" in card("<b>", {})
        (True, True)
    """
    import html  # for notebooks alone

    rows = [
        f'<tr><th scope="row" style="{_NAME}">{html.escape(name)}</th>'
        f'<td style="{_VALUE}">{html.escape(number(value))}</td></tr>'
        for name, value in facts.items()
        if value is not None
    ]
    heading = f'<caption style="text-align:left;font-weight:600">{html.escape(title)}</caption>'
    return f"<table>{heading}<tbody>{''.join(rows)}</tbody></table>"


def number(value: object) -> str:
    """A number for people: thousands separated, with six digits, or all before the point; anything else as text.

    Example:
        >>> number(1753.5634), number(1200), number(1.5e6), number(0.000161234), number("clamp")
        ('1,753.56', '1,200', '1,500,000', '0.000161234', 'clamp')
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or 1e6 <= abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.6g}"


def off(gap: float, brought: float | None = None, capacity: float = math.inf) -> str:
    """A cost gap in words, with a note where the averages do not add up to the capacity.

    Example:
        >>> off(0.0123), off(-0.0673, 294, 300)
        ('1.23 % above the optimum', '6.73 % below the optimum: averages add up to 294 of 300')
    """
    missed = shortfall(brought, capacity)
    words = f"{abs(100 * gap):.2f} % {'above' if gap >= 0.0 else 'below'} the optimum"
    return f"{words}: {missed}" if missed else words


def shortfall(brought: float | None, capacity: float) -> str:
    """The sum of the averages, where it differs from the capacity by more than one percent; else an empty text.

    Example:
        >>> shortfall(294.04, 300), shortfall(299, 300), shortfall(None, 300)
        ('averages add up to 294 of 300', '', '')
    """
    if brought is None or abs(brought - capacity) <= 0.01 * capacity:
        return ""
    return f"averages add up to {float(f'{brought:.4g}'):,.10g} of {capacity:,.10g}"
