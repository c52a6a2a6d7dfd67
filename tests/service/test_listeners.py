import asyncio
import http.client
import logging
import resource
import signal
import socket
import ssl
import subprocess
import sys
import textwrap
import time

import pytest

from service.served import PATIENCE, Sample, connect, eventually, read_all, read_response, self_signed, served
from turnout.errors import TurnoutError
from turnout.service.http import listeners
from turnout.service.http.asgi import send_json
from turnout.service.http.listeners import Bounds, Listener, serve_listeners
from turnout.service.network import allow_files, run_in_loop

GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
HOLD = b"POST /hold HTTP/1.1\r\nHost: here\r\ncontent-length: 0\r\n\r\n"


def ask(url, *, tls=None):
    host = url.partition("://")[2]
    kind = http.client.HTTPSConnection(host, timeout=PATIENCE, context=tls) if tls else None
    connection = kind or http.client.HTTPConnection(host, timeout=PATIENCE)
    connection.request("GET", "/")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_two_applications_in_one_loop_each_on_its_own_port():
    async def devices(scope, receive, send):
        await send_json(send, 200, b"devices")

    async def operator(scope, receive, send):
        await send_json(send, 200, b"operator")

    async def main():
        stop, found = asyncio.Event(), {}
        both = {"devices": Listener(devices), "operator": Listener(operator)}
        serving = asyncio.create_task(serve_listeners(both, bound=found.update, stop=stop))
        while not found:
            await asyncio.sleep(0.01)
        answers = [await asyncio.to_thread(ask, found[name].url) for name in both]
        stop.set()
        await serving
        return answers, found

    answers, found = asyncio.run(main())
    assert answers == [(200, b"devices"), (200, b"operator")]
    assert found["devices"].port != found["operator"].port
    for bound in found.values():
        with pytest.raises(ConnectionError):
            connect(bound)


def test_held_requests_are_answered_before_connections_close():
    app = Sample()
    with served(app) as (bound, _, stop), connect(bound) as held, connect(bound) as idle:
        idle.sendall(GET)
        read_response(idle)
        held.sendall(HOLD)
        eventually(lambda: "/hold" in app.seen)
        stop()
        assert read_response(held)[1] == b'{"length": 0}'
        assert read_all(held) == b""
        assert read_all(idle) == b""
    assert not app.gone


def test_tls_serves_its_own_and_nothing_in_the_clear(tmp_path):
    certificate, key = self_signed(tmp_path)
    with served(certificate=certificate, key=key) as (bound, _, _):
        assert bound.url == f"https://127.0.0.1:{bound.port}"
        context = ssl.create_default_context(cafile=str(certificate))
        assert ask(f"https://localhost:{bound.port}", tls=context)[0] == 200
        with connect(bound) as connection:
            connection.sendall(GET)
            assert b"200" not in read_all(connection)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert ask(f"https://localhost:{bound.port}", tls=context)[0] == 200


def serve_once(listener):
    asyncio.run(serve_listeners({"devices": listener}, stop=_set()))


def _set():
    event = asyncio.Event()
    event.set()
    return event


def test_an_address_that_is_taken_or_unknown_is_an_error_that_says_so():
    with served() as (bound, app, _):
        with pytest.raises(TurnoutError, match=rf"cannot listen on 127\.0\.0\.1, port {bound.port}: .*in use"):
            serve_once(Listener(app, port=bound.port))
        assert ask(bound.url)[0] == 200
    with pytest.raises(TurnoutError, match=r"cannot listen on no\.such\.host\.invalid, port 0"):
        serve_once(Listener(app, host="no.such.host.invalid"))


def test_where_one_listener_fails_none_is_left_open():
    with served() as (bound, app, _):
        free = socket.create_server(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        both = {"devices": Listener(app, port=port), "operator": Listener(app, port=bound.port)}
        with pytest.raises(TurnoutError, match="cannot listen"):
            asyncio.run(serve_listeners(both))
        with pytest.raises(ConnectionError):
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)


@pytest.mark.parametrize("wrong", [{"port": 65_536}, {"port": -1}, {"key": "key.pem"}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        Listener(Sample(), **wrong)


def test_a_name_with_several_addresses_has_one_port():
    with served(host="localhost") as (bound, _, _):
        for host in {found[4][0] for found in socket.getaddrinfo("localhost", None)}:
            with socket.create_connection((host, bound.port), timeout=PATIENCE) as connection:
                connection.sendall(GET)
                assert b"200 OK" in read_response(connection)[0]


def test_no_request_is_logged_and_an_applications_error_is(caplog):
    class Failing(Sample):
        async def __call__(self, scope, receive, send):
            await super().__call__(scope, receive, send) if scope["path"] == "/" else 1 / 0

    caplog.set_level(logging.DEBUG)
    with served(Failing()) as (bound, _, _):
        assert ask(bound.url)[0] == 200
        assert not [record for record in caplog.records if record.name.startswith("uvicorn")]
        with connect(bound) as connection:
            connection.sendall(GET.replace(b"GET /", b"GET /fails"))
            assert b"500 Internal" in read_all(connection)
    (line,) = [record for record in caplog.records if record.name.startswith("uvicorn")]
    assert "ZeroDivisionError" in caplog.text
    assert line.levelno == logging.ERROR


def test_stopping_that_fails_or_hangs_and_requests_without_answer_do_not_keep_it(caplog):
    class Endless(Sample):
        async def __call__(self, scope, receive, send):
            self.seen.append(scope["path"])
            await asyncio.Event().wait()

    async def main(stopping):
        app, stop, found = Endless(), asyncio.Event(), {}
        arguments = {"stopping_seconds": 0.2, "closing_seconds": 1, "bound": found.update, "stop": stop}
        serving = asyncio.create_task(serve_listeners({"devices": Listener(app)}, stopping=stopping, **arguments))
        while not found:
            await asyncio.sleep(0.01)
        connection = await asyncio.to_thread(connect, found["devices"])
        with connection:
            connection.sendall(GET)
            while not app.seen:
                await asyncio.sleep(0.01)
            stop.set()
            await asyncio.wait_for(serving, PATIENCE)
            return await asyncio.to_thread(read_all, connection)

    async def hangs():
        await asyncio.Event().wait()

    async def fails():
        raise RuntimeError("broken")

    for stopping, event in ((hangs, "stopping took too long"), (fails, "stopping failed")):
        assert b"200" not in asyncio.run(main(stopping))
        assert event in caplog.text


PROGRAM = """
    import asyncio, sys
    from service.served import Sample
    from turnout.service.http.listeners import Listener, serve_listeners
    from turnout.service.network import run_in_loop

    app = Sample()

    async def stopping():
        print("stopping", flush=True)
        await asyncio.sleep({seconds})
        app.release.set()

    async def main():
        app.release = asyncio.Event()
        tell = lambda bound: print(bound["devices"].port, flush=True)
        await serve_listeners({{"devices": Listener(app)}}, bound=tell, stopping=stopping)
        print("done", type(asyncio.get_running_loop()).__module__, flush=True)

    run_in_loop(main())
"""


@pytest.fixture
def process(request):
    """A process that serves, and its port; it takes so many seconds to stop."""
    program = textwrap.dedent(PROGRAM).format(seconds=request.param)
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment) as child:
        try:
            yield child, int(child.stdout.readline())
        finally:
            child.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("process", [0.5], indirect=True)
def test_a_signal_stops_in_order(process, number):
    child, port = process
    address = ("127.0.0.1", port)
    with socket.create_connection(address, PATIENCE) as held, socket.create_connection(address, PATIENCE) as other:
        held.sendall(HOLD)
        other.sendall(GET)
        read_response(other)
        child.send_signal(number)
        assert child.stdout.readline() == "stopping\n"
        other.sendall(GET)  # served on until those are answered who wait
        assert b"200 OK" in read_response(other)[0]
        assert b"200 OK" in read_response(held)[0]
        assert read_all(held) == read_all(other) == b""
    with pytest.raises(ConnectionError):  # nobody new
        socket.create_connection(address, PATIENCE)
    assert child.wait(PATIENCE) == 0
    assert child.stdout.readline() == "done uvloop\n"


@pytest.mark.parametrize("process", [600], indirect=True)
def test_a_second_signal_ends_it_at_once(process):
    child, _ = process
    child.send_signal(signal.SIGTERM)
    assert child.stdout.readline() == "stopping\n"
    begun = time.monotonic()
    child.send_signal(signal.SIGINT)
    assert child.wait(PATIENCE) == -signal.SIGINT
    assert time.monotonic() - begun < PATIENCE
    assert child.stdout.read() == ""


def test_signals_are_given_back():
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    serve_once(Listener(Sample()))
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_more_files_are_allowed_as_far_as_the_system_grants_them():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        assert allow_files(600) == 600
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (600, hard)
        assert allow_files(100) == 600
        if hard != resource.RLIM_INFINITY:
            assert allow_files(hard + 1) == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_where_fewer_files_are_granted_fewer_connections_are_taken(monkeypatch, caplog):
    monkeypatch.setattr(listeners, "allow_files", lambda wanted: 356)
    found = {}
    both = {
        "devices": Listener(Sample(), bounds=Bounds(most_connections=900)),
        "operator": Listener(Sample(), bounds=Bounds(most_connections=100)),
    }
    asyncio.run(serve_listeners(both, bound=found.update, stop=_set()))
    assert [bound.most_connections for bound in found.values()] == [90, 10]
    assert "fewer open files" in caplog.text


def test_uvloop_is_used_where_it_is_installed(monkeypatch):
    kinds = []

    async def main():
        kinds.append(type(asyncio.get_running_loop()).__module__)

    run_in_loop(main())
    monkeypatch.setitem(sys.modules, "uvloop", None)
    run_in_loop(main())
    assert kinds[0] == "uvloop"
    assert kinds[1].startswith("asyncio")


@pytest.mark.parametrize("library", ["uvicorn", "httptools"])
def test_without_the_servers_libraries_one_line_says_what_to_install(library):
    program = f"import sys; sys.modules[{library!r}] = None; import turnout.service.http.listeners"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith(f"the coordinator needs {library}, which is not installed: pip install 'turnout[server]'")
