"""A Ray cluster that is named but does not answer is found out in seconds, where Ray itself tries for minutes."""

import os
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from turnout.errors import TurnoutError
from turnout.simulation.workers import silent_cluster, spread


@pytest.fixture
def ray_file(tmp_path, monkeypatch):
    """Ray's own file with the address of this machine's cluster, in a temporary folder."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    return tmp_path / "ray" / "ray_current_cluster"


@pytest.fixture
def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    return port


def test_an_address_is_silent_only_if_nothing_listens(ray_file, closed_port, monkeypatch):
    assert silent_cluster() == ""  # no file: nothing is named
    ray_file.write_text(f"127.0.0.1:{closed_port}\n")
    assert silent_cluster() == f"the address in {ray_file} (127.0.0.1:{closed_port})"
    with socket.create_server(("127.0.0.1", 0)) as server:
        ray_file.write_text(f"127.0.0.1:{server.getsockname()[1]}")
        assert silent_cluster() == ""
        monkeypatch.setenv("RAY_ADDRESS", f"ray://127.0.0.1:{server.getsockname()[1]}")
        assert silent_cluster() == ""
    assert silent_cluster().startswith("RAY_ADDRESS=ray://127.0.0.1")


@pytest.mark.parametrize("named", ["auto", "127.0.0.1:{port}"])
def test_a_sweep_on_a_cluster_that_is_gone_says_so_at_once(named, ray_file, closed_port, monkeypatch):
    pytest.importorskip("ray")
    ray_file.write_text(f"127.0.0.1:{closed_port}")
    monkeypatch.setenv("RAY_ADDRESS", named.format(port=closed_port))
    begun = time.monotonic()
    with pytest.raises(TurnoutError, match=rf"no Ray cluster answers at .*:{closed_port}.*: start it, or unset"):
        list(spread(abs, [1], on="ray"))
    assert time.monotonic() - begun < 20


def test_a_stale_address_file_does_not_hold_up_a_run(ray_file, closed_port):
    pytest.importorskip("ray")
    ray_file.write_text(f"127.0.0.1:{closed_port}")
    code = """
        import ray
        from turnout.simulation.engines.ray import cluster

        class Tried(Exception):
            pass

        def init(address, **options):
            raise Tried(address)

        ray.init = init
        try:
            cluster._connect(cluster.Size(1, 1, 1))
        except Tried as tried:
            print(tried)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=os.environ, check=False
    )
    assert done.stdout.strip() == "local", done.stderr  # not "auto", which would wait for the address in the file
