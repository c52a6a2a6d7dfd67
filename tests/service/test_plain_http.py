"""Where others can listen in, the log says so once, and serving goes on: a proxy in front may do the rest."""

import asyncio
import logging

import pytest

from service.served import Sample, self_signed
from turnout.service.http.listeners import Listener, serve_listeners


@pytest.mark.parametrize(
    ("devices", "operator", "named"),
    [
        ("0.0.0.0", "0.0.0.0", ["devices", "operator"]),
        ("127.0.0.1", "0.0.0.0", ["operator"]),
        ("", "localhost", ["devices"]),
        ("localhost", "127.8.9.1", None),
    ],
)
def test_plain_http_beyond_this_machine_is_warned_of(caplog, devices, operator, named):
    hosts = {"devices": devices, "operator": operator}
    assert warned(caplog, {name: Listener(Sample(), host) for name, host in hosts.items()}) == named


def test_tls_is_not_warned_of(caplog, tmp_path):
    certificate, key = self_signed(tmp_path)
    safe, plain = Listener(Sample(), "0.0.0.0", 0, certificate, key), Listener(Sample(), "0.0.0.0")
    assert warned(caplog, {"devices": safe}) is None
    assert warned(caplog, {"devices": safe, "operator": plain}) == ["operator"]


def warned(caplog, listeners):
    """The listeners that a warning names, once they all listen; None without one."""
    caplog.clear()

    async def main():
        stop = asyncio.Event()
        await serve_listeners(listeners, bound=lambda _: stop.set(), stop=stop)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    found = [record for record in caplog.records if record.message.startswith("plain HTTP beyond this machine")]
    assert len(found) <= 1
    assert all("in the clear" in record.message for record in found)
    return found[0].turnout_fields["listeners"] if found else None
