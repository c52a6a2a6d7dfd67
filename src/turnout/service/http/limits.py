"""How often somebody may ask: a token bucket for each key, in bounded memory."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Hashable
from itertools import islice

from turnout.errors import invalid


class Limiter:
    """Lets each key through `burst` times at once and `rate` times a second in the long run.

    One number is kept for each key: when its bucket will be full again. A bucket that is full needs none and is
    forgotten. Where more than `most_keys` are active at once, those that come new share one bucket: the memory is
    bounded, and so is what all keys together get, at (most_keys + 1) times the rate.

    Args:
        rate: times a second; above 0.
        burst: times at once; from 1.
        most_keys: how many are told apart; from 1.

    Example:
        >>> limiter = Limiter(rate=0.5, burst=2)
        >>> [limiter.allow("192.0.2.7", now) for now in (0.0, 0.0, 0.0, 2.0)]
        [0.0, 0.0, 2.0, 0.0]
    """

    def __init__(self, rate: float, burst: float, most_keys: int = 65_536) -> None:
        if not 0.0 < rate < math.inf:
            raise invalid("rate", "above 0 a second", rate, "give a rate, such as 1.0")
        if not 1.0 <= burst < math.inf:
            raise invalid("burst", "1 or more", burst, "give how many may come at once, such as 10")
        if most_keys < 1:
            raise invalid("most_keys", "1 or more", most_keys, "try 65536")
        self._interval = 1.0 / rate
        self._patience = (burst - 1.0) / rate
        self._most_keys = most_keys
        self._full_at: dict[Hashable, float] = {}
        self._shared = -math.inf

    def __len__(self) -> int:
        return len(self._full_at)

    def allow(self, key: Hashable, now: float) -> float:
        """Take one from the key's bucket, if there is one.

        Args:
            key: an address (see `address_group`), a slot.
            now: seconds, of a clock that does not go back.

        Returns:
            0 if it may pass, else the seconds until it may (nothing was taken).
        """
        shared, full_at = self._bucket(key, now)
        wait = full_at - now - self._patience
        if wait > 0.0:
            return wait
        if shared:
            self._shared = full_at + self._interval
        else:
            self._full_at.pop(key, None)  # the last used goes to the end, so that the first ones are full soonest
            self._full_at[key] = full_at + self._interval
        return 0.0

    def wait(self, key: Hashable, now: float) -> float:
        """As `allow` says it, but nothing is taken: for those who pay only once they have failed."""
        return max(0.0, self._bucket(key, now)[1] - now - self._patience)

    def _bucket(self, key: Hashable, now: float) -> tuple[bool, float]:
        """(whether it is the shared one, when it will be full) of a key."""
        times = self._full_at
        known = key in times
        if not known and len(times) >= self._most_keys:
            self._forget(now)
        shared = not known and len(times) >= self._most_keys
        return shared, max(self._shared if shared else times.get(key, now), now)

    def _forget(self, now: float) -> None:
        """Drop full buckets, a few at a time: no caller pays for the whole table."""
        for key in list(islice(self._full_at, 8)):
            if self._full_at[key] <= now:
                del self._full_at[key]


def address_group(host: str) -> str:
    """What counts as one address: of IPv6 the first 64 bits, since whoever has one has them all.

    Example:
        >>> address_group("2001:db8:1:2:3:4:5:6"), address_group("::ffff:192.0.2.7"), address_group("192.0.2.7")
        ('2001:db8:1:2::', '192.0.2.7', '192.0.2.7')
    """
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Address(int(address) >> 64 << 64))


def is_loopback(host: str) -> bool:
    """Whether the address is of this machine.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("192.0.2.7")
        (True, True, False)
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool(address.is_loopback or (mapped is not None and mapped.is_loopback))
