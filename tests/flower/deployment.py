"""A real Flower deployment on loopback: a SuperLink with TLS and node authentication, and its SuperNodes."""

import contextlib
import datetime
import ipaddress
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

APP = Path(__file__).parent / "deployed_app"
TOOLS = Path(sys.executable).parent
SUPERLINK_HEADER = "[superlink]\ndefault = 'test'\n\n[superlink.test]\n"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_certificates(folder):
    """A certificate authority and a server certificate for 127.0.0.1, valid for a day."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    authority, server = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())

    def signed(subject, key, *extensions):
        made = x509.CertificateBuilder().serial_number(x509.random_serial_number()).public_key(key.public_key())
        made = made.subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
        made = made.issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "turnout test authority")]))
        made = made.not_valid_before(now - day).not_valid_after(now + day)
        for extension in extensions:
            made = made.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return made.sign(authority, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    usage = {"digital_signature": True, "key_cert_sign": True, "crl_sign": True}
    off = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only")
    root = signed(
        "turnout test authority",
        authority,
        x509.BasicConstraints(ca=True, path_length=None),
        x509.KeyUsage(**usage, **dict.fromkeys((*off, "decipher_only"), False)),
        x509.SubjectKeyIdentifier.from_public_key(authority.public_key()),
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    leaf = signed(
        "localhost",
        server,
        x509.BasicConstraints(ca=False, path_length=None),
        x509.SubjectAlternativeName(names),
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
    )
    (folder / "ca.crt").write_bytes(root)
    (folder / "server.pem").write_bytes(leaf)
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat
    key = server.private_bytes(serialization.Encoding.PEM, form.TraditionalOpenSSL, plain)
    (folder / "server.key").write_bytes(key)


def make_node_key(folder, node):
    """A key pair with which a SuperNode shows who it is."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    (folder / f"node{node}").write_bytes(private)
    (folder / f"node{node}.pub").write_bytes(public)


class Deployment:
    """Everything in one folder; every process it started is ended, by its id, when it is left."""

    def __init__(self, folder, nodes=4):
        self.folder, self.nodes = Path(folder), nodes
        self.port = free_port()
        self._processes = {}
        self._environment = os.environ | {
            "FLWR_HOME": str(self.folder / "home"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}",
        }

    def __enter__(self):
        (self.folder / "home").mkdir()
        make_certificates(self.folder)
        connection = f"address = '127.0.0.1:{self.port}'\nroot-certificates = '{self.folder}/ca.crt'\n"
        (self.folder / "home" / "config.toml").write_text(SUPERLINK_HEADER + connection)
        tls = [f"--ssl-{name}file={self.folder}/{file}" for name, file in CERTIFICATES.items()]
        link = ["flower-superlink", *tls, "--enable-supernode-auth", "--port", str(self.port)]
        try:
            self._start("superlink", [*link, "--disable-runtime-dependency-installation"])
            self._wait_for_port(self.port, 60)
            for node in range(self.nodes):
                (self.folder / f"state{node}").mkdir()
                make_node_key(self.folder, node)
                self.flwr("supernode", "register", str(self.folder / f"node{node}.pub"), "test")
                self.start_node(node)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in list(self._processes):
            self.stop(name)

    def flwr(self, *words, timeout=60):
        """A command of Flower's command line, from the app's folder."""
        done = subprocess.run(
            ["flwr", *words], cwd=APP, env=self._environment, capture_output=True, text=True, timeout=timeout
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.log("superlink")
        return done.stdout

    def start_node(self, node):
        """Start a SuperNode, or start it again: the same key, the same state directory."""
        config = f'partition-id={node} turnout-cost={1.0 + node} turnout-state="{self.folder}/state{node}"'
        command = ["flower-supernode", f"--root-certificates={self.folder}/ca.crt", "--node-config", config]
        command += [f"--superlink=127.0.0.1:{self.port}", "--port", str(free_port())]
        command += [f"--auth-supernode-private-key={self.folder}/node{node}"]
        self._start(f"node{node}", [*command, *(f"--ssl-{n}file={self.folder}/{f}" for n, f in CERTIFICATES.items())])

    def kill_node(self, node):
        """Kill a SuperNode as a power cut would."""
        self.stop(f"node{node}", kill=True)

    def restart_node(self, node, seconds):
        """Start a killed SuperNode until it is let in, as a service manager does.

        The SuperLink takes a killed node for alive as long as its last heartbeat is recent, and turns the new one away.
        """
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.start_node(node)
            try:
                self._processes[f"node{node}"].wait(timeout=12)
            except subprocess.TimeoutExpired:
                return
            self.stop(f"node{node}", kill=True)
        raise AssertionError(f"node {node} was not let in:\n{self.log(f'node{node}')}")

    def log(self, name):
        """The last lines that a process wrote."""
        path = self.folder / f"{name}.log"
        return "\n".join(path.read_text(errors="replace").splitlines()[-60:]) if path.exists() else ""

    def stop(self, name, kill=False):
        process = self._processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            # Each was started as the leader of its own group: what it has started ends with it.
            os.killpg(process.pid, 9 if kill else 15)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait(timeout=10)

    def _start(self, name, command):
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, env=self._environment, stdout=log, stderr=log, start_new_session=True, cwd=self.folder
            )

    def _wait_for_port(self, port, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                return
            time.sleep(0.2)
        raise AssertionError("nothing listens:\n" + self.log("superlink"))


CERTIFICATES = {"cert": "server.pem", "key": "server.key", "ca-cert": "ca.crt"}
