"""The shipped nginx.conf in front of a coordinator: strangers are cut off, memory is bounded, devices are served."""

import asyncio
import contextlib
import http.client
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from service.hostile import LARGE, SLOW, attacks
from service.served import self_signed, status
from turnout import paper_population
from turnout.service.load_test.load_test import Fleet

SHIPPED = Path(__file__).parents[2] / "examples/fleet/nginx.conf"
DEVICES = 40


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def configured(folder, port, coordinator):
    """The shipped file, with nothing changed but places."""
    certificate, key = self_signed(folder)
    text = SHIPPED.read_text()
    places = {
        "listen 8443 ": f"listen 127.0.0.1:{port} ",
        "127.0.0.1:8440 ": f"127.0.0.1:{coordinator} ",
        "/etc/turnout/certificate.pem": str(certificate),
        "/etc/turnout/key.pem": str(key),
        "/var/log/nginx/error.log": str(folder / "error.log"),
    }
    for shipped, ours in places.items():
        assert text.count(shipped) == 1
        text = text.replace(shipped, ours)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    return text.replace("http {", "http {" + "".join(f"{kind}_temp_path {folder}/{kind};" for kind in kinds), 1)


@contextlib.contextmanager
def started(command, log):
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture
def site(tmp_path):
    """A coordinator and nginx in front of it."""
    nginx = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin")
    assert nginx, "nginx is not installed: apt-get install nginx-light"
    port, coordinator, store = free_port(), free_port(), tmp_path / "run.db"
    config = tmp_path / "nginx.conf"
    config.write_text(configured(tmp_path, port, coordinator))
    serve = [sys.executable, "-m", "turnout", "serve", "--store", str(store), "--capacity", str(DEVICES / 2)]
    serve += ["--missing", "absent", "--wait-for", str(DEVICES), "--round-seconds", "0.5", "--deadline", "600"]
    serve += ["--port", str(coordinator), "--operator-port", "0", "--trusted-proxy", "127.0.0.1"]
    front = [nginx, "-p", str(tmp_path), "-e", str(tmp_path / "early.log"), "-c", str(config)]
    front += ["-g", f"daemon off; pid {tmp_path}/nginx.pid;"]
    with (
        started(serve, tmp_path / "serve.log") as behind,
        started(front, tmp_path / "nginx.log") as before,
    ):
        found = SimpleNamespace(port=port, ca=tmp_path / "certificate.pem", store=store, behind=behind, before=before)
        for _ in range(300):
            with contextlib.suppress(OSError, http.client.HTTPException):
                if ask(found, "/readyz")[0] == 200:
                    break
            time.sleep(0.1)
        else:
            raise AssertionError((tmp_path / "serve.log").read_text() + (tmp_path / "nginx.log").read_text())
        yield found


def ask(site, path, source="127.0.0.1", **headers):
    """(status, seconds) of one request by TLS."""
    tls, begun = ssl.create_default_context(cafile=str(site.ca)), time.monotonic()
    connection = http.client.HTTPSConnection(
        "localhost", site.port, timeout=30, context=tls, source_address=(source, 0)
    )
    with contextlib.closing(connection):
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status, time.monotonic() - begun


def megabytes(process):
    """What a process and its children have in memory."""
    pids = [process.pid, *map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())]
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return sum(int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) for text in texts) / 1024


class Meanwhile(threading.Thread):
    """Devices that report, and somebody who asks, until told to stop."""

    def __init__(self, site):
        super().__init__(daemon=True)
        codes = [sys.executable, "-m", "turnout", "operate", "codes", str(DEVICES), "--store", str(site.store)]
        given = subprocess.run(codes, check=True, capture_output=True, text=True).stdout.split()
        url = f"https://localhost:{site.port}"
        self.fleet = Fleet(url, paper_population(0, DEVICES).costs, given, seed=1, ca=site.ca)
        self.site, self.seconds, self.memory, self.over = site, [], [], threading.Event()

    def run(self):
        while not self.over.wait(0.5):
            code, seconds = ask(self.site, "/healthz")
            self.seconds.append(seconds if code == 200 else float("inf"))
            self.memory.append((megabytes(self.site.behind), megabytes(self.site.before)))


@pytest.mark.deployment
def test_strangers_are_cut_off_in_bounded_memory_and_devices_are_served(site):
    meanwhile = Meanwhile(site)

    async def main():
        await meanwhile.fleet.run(3)
        quiet = megabytes(site.behind), megabytes(site.before)
        meanwhile.start()
        counts = dict.fromkeys(SLOW, 100) | dict.fromkeys(LARGE, 20) | {"unread": 20}
        attacking = asyncio.create_task(attacks(counts, site.port, site.ca))
        while not attacking.done():
            await meanwhile.fleet.run(5)
        return quiet, await attacking

    quiet, ends = asyncio.run(main())
    meanwhile.over.set()
    meanwhile.join(60)
    record = meanwhile.fleet.record
    behind, before = (max(sizes) for sizes in zip(*meanwhile.memory, strict=True))
    print(f"coordinator {quiet[0]:.0f} -> {behind:.0f} MB, nginx {quiet[1]:.0f} -> {before:.0f} MB,")
    print(f"slowest answer {max(meanwhile.seconds):.2f} s, {len(record.rounds)} rounds")
    for kind in {*SLOW, *LARGE, "unread"}:
        assert max(end.seconds for end in ends if end.kind == kind) < 85, f"{kind} was not cut off"
    assert max(end.seconds for end in ends if end.kind in ("silent", "slow head", "blank lines", "no body")) < 40
    assert {status(end.answer) for end in ends if end.kind in LARGE} <= {None, 400, 413, 414}
    assert behind - quiet[0] < 30
    assert before - quiet[1] < 150
    assert max(meanwhile.seconds) < 15
    assert set(record.faults) <= {"asked to wait"}
    assert record.reconnects == 0


@pytest.mark.deployment
def test_addresses_are_told_apart_and_cannot_be_made_up(site):
    def wrong(source, times, **headers):
        named = {"Authorization": "Bearer wrong"} | headers
        return [ask(site, "/v1/round", source, **named)[0] for _ in range(times)]

    made_up = [wrong("127.0.0.2", 1, **{"X-Forwarded-For": f"192.0.2.{number}"})[0] for number in range(25)]
    assert made_up[0] == 401
    assert made_up[-1] == 429
    assert wrong("127.0.0.3", 2) == [401, 401]
