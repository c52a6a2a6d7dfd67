"""What a device pays for `turnout join`: disk, time to start, memory while it waits in a run.

    python benchmarks/device.py ENVIRONMENT...

Each ENVIRONMENT is a virtual environment with turnout in it, made for this by `pip install`. They take turns, so that
whatever else the machine does meets all of them.
"""

import argparse
import json
import os
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ROUNDS = 20
"""Decided before the memory is read: by then all that a round needs is loaded."""

TOOLS = {"pip", "setuptools", "pkg_resources", "_distutils_hack", "wheel"}
"""What a new environment has before anything is installed."""


class Coordinator(ThreadingHTTPServer):
    """Enough of one for a device: it closes each round at once, and holds the answer to the last."""

    daemon_threads = True

    def __init__(self, certificate=None):
        super().__init__(("127.0.0.1", 0), _Answers)
        self.first, self.held, self.release = threading.Event(), threading.Event(), threading.Event()
        self.at = 0.0
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket, scheme = context.wrap_socket(self.socket, server_side=True), "https"
        self.url = f"{scheme}://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, path, body):
        """(status, reply) of a request; the last report waits."""
        if not self.first.is_set():
            self.at = time.perf_counter()
            self.first.set()
        if path == "/v1/enrol":
            told = {"version": 1, "run": "r", "token": "t" * 43, "weight": 1, "prior_average": 0.5, "prior_rounds": 10}
            told |= {"remember": None, "by": "bit", "offer": {"round": 0, "signal": 2.0}}
            return 201, told | {"mechanism": {"kind": "clamp", "epsilon": 1.0, "center": 0.5}}
        if path == "/v1/round":
            return 200, {"run": "r", "round": 0, "signal": 2.0}
        now = body["round"]
        if now >= ROUNDS:
            self.held.set()
            self.release.wait(60)
        after = {"round": now + 1, "signal": 2.0}
        return 200, {"round": now, "outcome": "accepted", "counted": True, "lease": 0.0, "next": after}

    def handle_error(self, *_):
        """A device that was ended: nothing to say."""


class _Answers(BaseHTTPRequestHandler):
    protocol_version, wbufsize = "HTTP/1.1", -1

    server: Coordinator

    def do_GET(self):
        self.do_POST()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        status, told = self.server.answer(self.path, body)
        content = json.dumps(told).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def once(environment, certificate=None):
    """(seconds from the start of the program to its first request, of which the processor worked, MiB in a run)."""
    with tempfile.TemporaryDirectory() as folder:
        server = Coordinator(certificate)
        command = [str(Path(environment) / "bin" / "turnout"), "join", server.url, "--code", "A-CODE", "--cost", "3"]
        command += ["--folder", f"{folder}/device", "--witness", f"{folder}/witness"]
        command += [] if certificate is None else ["--ca", str(certificate)]
        begun = time.perf_counter()
        device = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=_clean())
        try:
            busy = _processor(device.pid) if server.first.wait(60) else 0.0
            if not server.held.wait(60):
                device.kill()
                raise RuntimeError(f"{environment}: no round was reached: {device.communicate()[1].decode()}")
            time.sleep(0.1)
            status = Path(f"/proc/{device.pid}/status").read_text()
        finally:
            server.release.set()
            device.kill()
            device.wait()
            device.stderr.close()
            server.shutdown()
            server.server_close()
    memory = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    return server.at - begun, busy, memory / 1024


def _processor(pid):
    """Seconds for which a processor has worked for the main thread: this hardly depends on what else runs."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _numpy(environment):
    """Seconds of processor for a program that only imports NumPy: how fast this machine is at this moment."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    alone = _clean() | {"OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([str(Path(environment) / "bin" / "python"), "-c", "import numpy"], check=True, env=alone)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _clean():
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OPENBLAS"))}


def on_disk(environment):
    """MiB of what was installed, without what every new environment has."""
    (packages,) = Path(environment).glob("lib/python*/site-packages")
    total = 0
    for top in packages.iterdir():
        if top.name.split("-")[0] in TOOLS:
            continue
        files = top.rglob("*") if top.is_dir() else [top]
        total += sum(file.stat().st_blocks * 512 for file in files if file.is_file())
    return total / 2**20


def self_signed(folder):
    """A PEM file with a key and a certificate of this machine."""
    made = Path(folder) / "here.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-days",
        "2",
    ]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", f"{folder}/key.pem", "-out", str(made)], check=True, capture_output=True)
    made.write_text(made.read_text() + Path(f"{folder}/key.pem").read_text())
    return made


def measure(environments, tries=20, certificate=None):
    """{environment: what it takes}, the environments taking turns; medians, but `least` is the shortest start."""
    found = {str(one): [] for one in environments}
    for _ in range(tries + 1):
        for one in environments:
            found[str(one)].append((*once(one, certificate), _numpy(one)))
    figures = {}
    for name, tried in found.items():
        start, busy, memory, numpy = map(statistics.median, zip(*tried[1:], strict=True))  # the first fills caches
        least = min(seconds for seconds, *_ in tried)
        figures[name] = {"disk": on_disk(name), "start": start, "least": least, "busy": busy}
        figures[name] |= {"memory": memory, "numpy": numpy}
    return figures


def main():
    """Print a table."""
    reader = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    reader.add_argument("environments", nargs="*", default=[sys.prefix])
    reader.add_argument("--tries", type=int, default=20)
    asked = reader.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for scheme, certificate in (("http", None), ("https", self_signed(folder))):
            for name, figures in measure(asked.environments, asked.tries, certificate).items():
                print(
                    f"{scheme:<6} {name}: {figures['disk']:.0f} MiB on disk, starts in {figures['start']:.2f} s "
                    f"(at best {figures['least']:.2f}, processor {figures['busy']:.2f}, `import numpy` alone "
                    f"{figures['numpy']:.2f}), holds {figures['memory']:.1f} MiB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
