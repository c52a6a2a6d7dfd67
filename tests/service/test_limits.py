import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnout.service.http.limits import Limiter, address_group, is_loopback


def test_a_burst_then_the_rate():
    limiter = Limiter(rate=2.0, burst=3)
    assert [limiter.allow("a", 10.0) for _ in range(3)] == [0.0] * 3
    assert limiter.allow("a", 10.0) == 0.5
    assert limiter.allow("a", 10.25) == 0.25
    assert limiter.allow("b", 10.25) == 0.0
    assert limiter.allow("a", 10.5) == 0.0
    assert limiter.allow("a", 10.5) == 0.5
    assert [limiter.allow("a", 1000.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]  # never more than the burst


gaps = st.lists(st.integers(0, 40), min_size=1, max_size=200)


@given(gaps, st.integers(1, 5), st.sampled_from([0.25, 0.5, 1.0, 2.0]))
def test_it_is_a_token_bucket(gaps, burst, rate):
    """Against the textbook's: tokens that drip in up to the burst, in eighths of a second (so that all is exact)."""
    limiter, tokens, now = Limiter(rate, burst), float(burst), 0.0
    for gap in gaps:
        now += gap / 8.0
        tokens = min(float(burst), tokens + rate * gap / 8.0)
        wait = limiter.allow("a", now)
        assert wait == (0.0 if tokens >= 1.0 else (1.0 - tokens) / rate)
        tokens -= tokens >= 1.0


def test_after_the_wait_it_may():
    limiter = Limiter(rate=0.1, burst=1)
    limiter.allow("a", 0.0)
    wait = limiter.allow("a", 3.0)
    assert limiter.allow("a", 3.0 + wait) == 0.0


def test_looking_takes_nothing():
    limiter = Limiter(rate=0.5, burst=2, most_keys=1)
    assert [limiter.wait("a", 1.0) for _ in range(5)] == [0.0] * 5
    assert len(limiter) == 0
    assert [limiter.allow("a", 1.0) for _ in range(2)] == [0.0] * 2
    assert [limiter.wait("a", now) for now in (1.0, 1.0, 2.5, 3.0, 9.0)] == [2.0, 2.0, 0.5, 0.0, 0.0]
    assert limiter.wait("b", 1.0) == 0.0  # what newcomers share is full
    assert [limiter.allow(key, 1.0) for key in "bc"] == [0.0] * 2
    assert limiter.wait("d", 1.0) == limiter.allow("d", 1.0) == 2.0
    assert limiter.wait("d", 9.0) == 0.0  # there is room again


def test_memory_is_bounded_and_newcomers_share_what_is_left():
    limiter = Limiter(rate=1.0, burst=2, most_keys=100)
    passed = sum(limiter.allow(key, 0.0) == 0.0 for key in range(10_000))
    assert len(limiter) == 100
    assert passed == 100 + 2
    assert limiter.allow(5, 0.0) == 0.0  # who is known keeps a bucket
    assert limiter.allow(5, 0.0) == 1.0


def test_who_has_long_been_quiet_makes_room():
    limiter = Limiter(rate=1.0, burst=1, most_keys=100)
    for key in range(100):
        limiter.allow(key, 0.0)
    assert all(limiter.allow(("new", key), 5.0) == 0.0 for key in range(100))
    assert len(limiter) <= 100


def test_rotating_keys_gain_nothing():
    limiter = Limiter(rate=1.0, burst=5, most_keys=10)
    passed = sum(limiter.allow(key % 1000, key / 1000.0) == 0.0 for key in range(20_000))
    assert passed <= (10 + 1) * (20 + 5)


@pytest.mark.parametrize("wrong", [{"rate": 0.0}, {"burst": 0.5}, {"most_keys": 0}, {"rate": float("nan")}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
        Limiter(**{"rate": 1.0, "burst": 1.0} | wrong)


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8::1", "2001:db8::"),
        ("2001:db8::ffff:0:0:2", "2001:db8::"),
        ("2001:db8:0:1::1", "2001:db8:0:1::"),
        ("fe80::1%eth0", "fe80::"),
        ("no:address", "no:address"),
        ("", ""),
    ],
)
def test_an_ipv6_network_is_one_address(host, group):
    assert address_group(host) == group


def test_loopback_is_told_apart():
    assert is_loopback("127.8.9.1")
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("::2")
    assert not is_loopback("no address")
