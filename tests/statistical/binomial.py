"""The one way to test a probability: an exact binomial test with a stated false-alarm rate."""

from scipy.stats import binomtest

FALSE_ALARM = 1e-6


def assert_proportion(successes: int, trials: int, probability: float) -> None:
    """Fails if a coin of this probability gives a count so far off with a chance below 1e-6."""
    chance = binomtest(int(successes), int(trials), probability).pvalue
    assert chance >= FALSE_ALARM, f"{successes} of {trials} is no coin of {probability} (p-value {chance:.1e})"
