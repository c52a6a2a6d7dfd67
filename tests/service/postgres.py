"""A PostgreSQL server of the tests' own, in a temporary folder, on a free port of this machine."""

import atexit
import contextlib
import functools
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
import pytest

PASSWORD = "p4ssw0rd-of-the-tests"
_NUMBERS = itertools.count()


def binaries() -> Path:
    """The folder with PostgreSQL's programs."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if program := shutil.which("pg_config"):
        told = subprocess.run([program, "--bindir"], capture_output=True, text=True, check=True).stdout.strip()
        places.insert(0, Path(told))
    for place in places:
        if (place / "initdb").exists() and shutil.which("setpriv"):
            return place
    return pytest.fail("these tests need PostgreSQL's server, 15 or newer: apt-get install postgresql util-linux")


class Server:
    """One server, started on making it; it dies with this process."""

    def __init__(self) -> None:
        self.programs = binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="turnout-postgres-"))
        self.data = self.folder / "data"
        password = self.folder / "password"
        password.write_text(PASSWORD)
        self._as_user = ["setpriv", "--pdeathsig", "INT"]
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            user = pwd.getpwnam("postgres")
            for path in (self.folder, password):
                os.chown(path, user.pw_uid, user.pw_gid)
            self._as_user += [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        options = ["-U", "turnout", "-A", "scram-sha-256", f"--pwfile={password}", "-E", "UTF8", "--locale=C"]
        self._call("initdb", "--no-sync", "-D", str(self.data), *options)
        self.start()

    def _call(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self.programs / program), *arguments]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        """Start it and wait until it answers; `fsync` only matters when the machine itself dies."""
        settings = {"port": self.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        settings |= {"shared_buffers": "32MB", "max_connections": 40}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        command = [*self._as_user, str(self.programs / "postgres"), "-D", str(self.data), *options]
        with (self.folder / "log").open("a") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        end = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url("postgres"), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                assert self.process.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < end, "PostgreSQL does not start"
            time.sleep(0.02)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT: in order; SIGQUIT: at once, as in a crash."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(how)
        self.process.wait(timeout=30)

    def restart(self) -> None:
        """As after a crash."""
        self.stop(signal.SIGQUIT)
        self.start()

    def remove(self) -> None:
        """Leave nothing."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str, password: str = PASSWORD) -> str:
        """Of a database."""
        return f"postgresql://turnout:{password}@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """The location of a new, empty database."""
        name = f"test_{next(_NUMBERS)}"
        self.sql("postgres", f"CREATE DATABASE {name} STRATEGY file_copy")  # twice as fast as the default
        return self.url(name)

    def sql(self, database: str, statement: str) -> list[tuple]:
        """Carry out one statement, as an administrator would; the rows, if there are any."""
        location = database if "://" in database else self.url(database)
        with psycopg.connect(location, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []


@functools.cache
def server() -> Server:
    """The one server of this process."""
    made = Server()
    atexit.register(made.remove)
    return made
