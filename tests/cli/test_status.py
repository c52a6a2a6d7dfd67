"""`turnout status` against a real listener."""

import contextlib
import json
import re
import socket
import ssl
import threading

import pytest
import typer
from typer.testing import CliRunner

from service.fake_operated import PASSWORD, FakeOperated, served
from service.served import self_signed
from turnout.cli.status import status
from turnout.errors import FileProblem
from turnout.service import Unreachable

app = typer.Typer()
app.command()(status)


@pytest.fixture
def password_file(tmp_path):
    path = tmp_path / "operator.password"
    path.touch(0o600)
    path.write_text(PASSWORD + "\n")
    return path


def run(url, password_file, *options):
    return CliRunner().invoke(app, [url, "--password-file", str(password_file), *options], env={"COLUMNS": "120"})


def test_a_healthy_run(password_file):
    with served(FakeOperated(rounds=80, faults={"late reports": 3, "full disk": 0, "odd [bold]": 1})) as server:
        done = run(server.url, password_file)
    assert done.exit_code == 0, done.output
    lines = dict(line.strip().split(maxsplit=1) for line in done.output.splitlines() if line[:1].strip())
    assert lines["run"] == "night-shift, running"
    assert re.match(r"80 \(open for \d+ s, deadline 15 s\)", lines["round"])
    assert lines["turnout"].endswith(", capacity 600, hard limit 700")
    assert lines["devices"] == "1,200: 1,179 reported, 14 awaited, 7 gone"
    assert lines["faults"] == "late reports 3, odd [bold] 1"
    assert "total epsilon 1.366 at delta 1e-06 over 1,000 reports, against an observer of" in lines["privacy"]
    assert "against" in lines["privacy"]
    assert any(block in done.output for block in "▁▂▃▄▅▆▇█")


def test_trouble_has_an_exit_code_and_a_reason(password_file):
    with served(FakeOperated(rounds=60, outage=(40, 70))) as server:
        done = run(server.url, password_file)
        as_json = run(server.url, password_file, "--json")
    assert done.exit_code == as_json.exit_code == 1
    assert "the signal is frozen" in done.output
    found = json.loads(as_json.output)
    assert found["frozen"]
    assert found["troubles"]


def test_a_pause_is_said_and_hides_no_trouble(password_file):
    operated = FakeOperated(rounds=60)
    operated.mode = "paused"
    with served(operated) as server:
        done = run(server.url, password_file)
        for slot in range(600):
            operated.roll.missed[slot] = 9
        troubled = run(server.url, password_file)
    assert (done.exit_code, troubled.exit_code) == (0, 1)
    assert "night-shift, paused (no round closes until `turnout operate resume`)" in done.output
    assert "devices are gone: 600" in troubled.output


def test_before_the_first_round(password_file):
    with served(FakeOperated(waiting_for=5, hard_limit=None)) as server:
        done = run(server.url + "/", password_file)
    assert done.exit_code == 0
    assert "waiting for 5 more devices" in done.output
    assert "no hard limit" in done.output


def refused(url, password_file, *options):
    """The message; `turnout` prints it in a line and exits with 2."""
    done = run(url, password_file, *options)
    assert isinstance(done.exception, (Unreachable, FileProblem, ValueError)), done.exception
    return str(done.exception)


def test_a_certificate_of_an_unknown_authority_asks_for_ca(password_file, tmp_path):
    certificate, key = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def shake_hands():
            with contextlib.suppress(OSError), listener.accept()[0] as connection:
                context.wrap_socket(connection, server_side=True).close()

        thread = threading.Thread(target=shake_hands)
        thread.start()
        said = refused(f"https://localhost:{listener.getsockname()[1]}", password_file)
        thread.join(10)
    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert "--ca must name the PEM file of the authority" in said
    assert "turnout serve" not in said


def test_no_answer_or_a_wrong_password(password_file, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert "is `turnout serve` running" in refused(f"http://127.0.0.1:{taken.getsockname()[1]}", password_file)
    assert "URL must be http:// or https://" in refused("ftp://127.0.0.1", password_file)
    authority = ("--ca", str(tmp_path / "none.pem"))
    assert "not a readable PEM file" in refused("https://127.0.0.1", password_file, *authority)
    assert "ca must be left out for http" in refused("http://127.0.0.1", password_file, *authority)
    with served(FakeOperated()) as server:
        secure = refused(server.url.replace("http:", "https:"), password_file)
        assert "no answer" in secure
        assert "if it is served without TLS, write http://" in secure
        assert "check the address" in refused(server.url + "/nothing", password_file)
        password_file.write_text("wrong")
        assert "wrong name or password: check --password-file" in refused(server.url, password_file)
    password_file.chmod(0o644)
    assert "others may read" in refused(server.url, password_file)
