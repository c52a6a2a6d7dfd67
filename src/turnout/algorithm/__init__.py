"""The algorithm: one step of a client, the mechanisms that keep it private, and the server that sets the signal.

Simulation, service and Flower call the same steps. Fast engines compile the same functions and give the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnout._lazy import lazy
from turnout.algorithm.arithmetic import at_least, at_most, inside, root
from turnout.algorithm.client import (
    SMALLEST_AVERAGE,
    Averaging,
    ClientState,
    Prior,
    Step,
    average_of,
    client_step,
    intent,
    next_rounds,
    released,
    remembered,
)
from turnout.algorithm.coins import Coins, KeyedCoins, SeededCoins, SystemCoins
from turnout.algorithm.mechanism import Mechanism, Public, Recipe, check_mechanism, widest
from turnout.algorithm.mechanisms import MECHANISMS, check_known, check_name, in_words, mechanism_from_settings
from turnout.algorithm.thresholds import WORDS, check_epsilon, growth, keeps, on_the_coin, widest_box

if TYPE_CHECKING:
    from turnout.algorithm.channel import Channel, best_channel
    from turnout.algorithm.controllers import (
        Controller,
        FallingGainController,
        IntegralController,
        IntegralState,
        SelfTuningController,
        check_controller,
        controller_from_settings,
        integral_signal,
    )
    from turnout.algorithm.mechanisms.capped_coin import CappedCoin
    from turnout.algorithm.mechanisms.clamp import Clamp
    from turnout.algorithm.mechanisms.classical import Classical
    from turnout.algorithm.mechanisms.learned_memoized import LearnedMemoized
    from turnout.algorithm.mechanisms.memoized import Memoized, OneRelease
    from turnout.algorithm.mechanisms.paper_coin import PaperCoin, coin_probability
    from turnout.algorithm.mechanisms.randomized_response import RandomizedResponse
    from turnout.algorithm.mechanisms.tracking_clamp import MARGIN, TrackingClamp
    from turnout.algorithm.noise import SumNoise, discrete_gaussian, noise_from_settings
    from turnout.algorithm.presence import FORGIVEN, QUORUM, Attendance, Presence
    from turnout.algorithm.server import EVERYONE, Heard, ServerState, in_reach, server_step

__all__ = [
    "EVERYONE",
    "FORGIVEN",
    "MARGIN",
    "MECHANISMS",
    "QUORUM",
    "SMALLEST_AVERAGE",
    "WORDS",
    "Attendance",
    "Averaging",
    "CappedCoin",
    "Channel",
    "Clamp",
    "Classical",
    "ClientState",
    "Coins",
    "Controller",
    "FallingGainController",
    "Heard",
    "IntegralController",
    "IntegralState",
    "KeyedCoins",
    "LearnedMemoized",
    "Mechanism",
    "Memoized",
    "OneRelease",
    "PaperCoin",
    "Presence",
    "Prior",
    "Public",
    "RandomizedResponse",
    "Recipe",
    "SeededCoins",
    "SelfTuningController",
    "ServerState",
    "Step",
    "SumNoise",
    "SystemCoins",
    "TrackingClamp",
    "at_least",
    "at_most",
    "average_of",
    "best_channel",
    "check_controller",
    "check_epsilon",
    "check_known",
    "check_mechanism",
    "check_name",
    "client_step",
    "coin_probability",
    "controller_from_settings",
    "discrete_gaussian",
    "growth",
    "in_reach",
    "in_words",
    "inside",
    "integral_signal",
    "intent",
    "keeps",
    "mechanism_from_settings",
    "next_rounds",
    "noise_from_settings",
    "on_the_coin",
    "released",
    "remembered",
    "root",
    "server_step",
    "widest",
    "widest_box",
]

# Loaded on first use: a device needs none of these.
__getattr__, _ = lazy(
    __name__,
    {
        "channel": (
            "Channel",
            "best_channel",
        ),
        "controllers": (
            "Controller",
            "FallingGainController",
            "IntegralController",
            "IntegralState",
            "SelfTuningController",
            "check_controller",
            "controller_from_settings",
            "integral_signal",
        ),
        "mechanisms.capped_coin": ("CappedCoin",),
        "mechanisms.clamp": ("Clamp",),
        "mechanisms.classical": ("Classical",),
        "mechanisms.learned_memoized": ("LearnedMemoized",),
        "mechanisms.memoized": (
            "Memoized",
            "OneRelease",
        ),
        "mechanisms.paper_coin": (
            "PaperCoin",
            "coin_probability",
        ),
        "mechanisms.randomized_response": ("RandomizedResponse",),
        "mechanisms.tracking_clamp": (
            "MARGIN",
            "TrackingClamp",
        ),
        "noise": (
            "SumNoise",
            "discrete_gaussian",
            "noise_from_settings",
        ),
        "presence": (
            "FORGIVEN",
            "QUORUM",
            "Attendance",
            "Presence",
        ),
        "server": (
            "EVERYONE",
            "Heard",
            "ServerState",
            "in_reach",
            "server_step",
        ),
    },
)


def __dir__() -> list[str]:
    return __all__
