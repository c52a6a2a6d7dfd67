"""Certificates: which can serve, and that a renewed one is taken while the coordinator runs."""

import os
import shutil
import ssl

import pytest

from service.served import PATIENCE, connect, eventually, read_response, self_signed, served
from turnout.errors import FileProblem
from turnout.service.http import certificate as module
from turnout.service.http.certificate import Certificate, tls_context

GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Heard:
    """What was logged, by level."""

    def __init__(self):
        self.info, self.error = self._into(taken := []), self._into(refused := [])
        self.taken, self.refused = taken, refused

    def _into(self, lines):
        return lambda message, **fields: lines.append((message, fields))


@pytest.fixture
def log(monkeypatch):
    heard = Heard()
    monkeypatch.setattr(module, "_log", heard)
    return heard


@pytest.fixture
def two(tmp_path):
    """Two certificates for localhost, each in a folder."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        self_signed(tmp_path / name)
    return tmp_path / "old", tmp_path / "new"


def shown(bound):
    """The certificate that a new connection is shown."""
    return ssl.get_server_certificate(("127.0.0.1", bound.port), timeout=PATIENCE).strip()


def text(folder):
    return (folder / "certificate.pem").read_text().strip()


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_renewed_certificate_is_taken_and_who_is_connected_stays_so(two, log, loop):
    old, new = two
    before, after = text(old), text(new)
    with served(certificate=old / "certificate.pem", key=old / "key.pem", loop=loop) as (bound, _, _):
        context = ssl.create_default_context(cafile=str(old / "certificate.pem"))
        with context.wrap_socket(connect(bound), server_hostname="localhost") as connected:
            assert shown(bound) == before
            shutil.copy(new / "certificate.pem", old / "certificate.pem")  # the key does not belong to it yet
            eventually(lambda: log.refused)
            assert shown(bound) == before
            assert log.taken == []
            shutil.copy(new / "key.pem", old / "key.pem")
            eventually(lambda: log.taken)
            assert shown(bound) == after
            connected.sendall(GET)
            assert b"200" in read_response(connected)[0]
    assert len(log.refused) == len(log.taken) == 1, "each is said once"
    assert "cannot serve with this certificate" in log.refused[0][1]["reason"]


def test_a_link_that_is_moved_is_a_new_certificate(two, tmp_path, log):
    """As with renewals that keep every certificate, and with secrets that are mounted."""
    old, new = two
    live, part = tmp_path / "live", tmp_path / "part"
    live.symlink_to(old)
    certificate = Certificate(live / "certificate.pem", live / "key.pem")
    assert not certificate.follow()
    part.symlink_to(new)
    os.replace(part, live)
    assert certificate.follow()
    assert not certificate.follow()


def test_files_that_are_gone_or_spoilt_leave_the_old_one(two, log):
    old, new = two
    path, key = old / "certificate.pem", old / "key.pem"
    certificate, good = Certificate(path, key), path.read_bytes()
    path.unlink()
    assert not any([certificate.follow(), certificate.follow()])
    path.write_text("no certificate")
    assert not any([certificate.follow(), certificate.follow()])
    assert len(log.refused) == 2
    path.write_bytes(good)
    assert certificate.follow()
    shutil.copy(new / "key.pem", key)
    assert not certificate.follow()
    with pytest.raises(FileProblem):
        Certificate(path, key)


def test_certificates_that_cannot_serve_are_errors_that_say_so(tmp_path):
    (tmp_path / "other").mkdir()
    certificate, key = self_signed(tmp_path)
    _, foreign = self_signed(tmp_path / "other")
    (tmp_path / "text.pem").write_text("no certificate")
    for wrong in ((tmp_path / "none.pem", key), (certificate, tmp_path / "none.pem"), (certificate, foreign)):
        with pytest.raises(FileProblem, match="give a PEM certificate and the key"):
            tls_context(*wrong)
    with pytest.raises(FileProblem, match=r"text\.pem"):
        tls_context(tmp_path / "text.pem", None)
    joined = tmp_path / "joined.pem"
    joined.write_bytes(certificate.read_bytes() + key.read_bytes())
    assert tls_context(joined, None).minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_locked_key_is_refused_and_nobody_is_asked_for_a_password(tmp_path):
    from cryptography.hazmat.primitives import serialization

    certificate, key = self_signed(tmp_path)
    unlocked = serialization.load_pem_private_key(key.read_bytes(), None)
    locked = serialization.BestAvailableEncryption(b"secret")
    form = serialization.PrivateFormat.PKCS8
    key.write_bytes(unlocked.private_bytes(serialization.Encoding.PEM, form, locked))
    with pytest.raises(FileProblem, match="locked by a password"):
        tls_context(certificate, key)
