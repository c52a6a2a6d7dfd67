"""The tables that several figures share."""

from __future__ import annotations

from functools import partial

from turnout.paper.runs import Numbers, Tick, forecast, full_run, over_seeds
from turnout.paper.settings import SETTINGS, mechanisms
from turnout.paper.store import Store


def _nothing() -> None:
    pass


def full_runs(store: Store) -> dict[str, Numbers]:
    """One run of each of the five settings, in full."""
    return {name: store.numbers(f"run-{name}", partial(full_run, made)) for name, made in mechanisms().items()}


def seeds(store: Store, tick: Tick = _nothing, *, populations: bool = False) -> dict[str, Numbers]:
    """The five settings over a hundred seeds: of the coins, or of coins and population."""
    kind = "populations" if populations else "seeds"
    chosen = range(SETTINGS["seeds"].value)
    return {
        name: store.numbers(f"{kind}-{name}", partial(over_seeds, made, chosen, populations=populations, tick=tick))
        for name, made in mechanisms().items()
    }


def forecasts(store: Store) -> dict[str, Numbers]:
    """The forecast of each of the five settings."""
    return {name: store.numbers(f"forecast-{name}", partial(forecast, made)) for name, made in mechanisms().items()}
