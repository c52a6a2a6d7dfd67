"""The operator's password: its file, its hash, its bounds."""

import pytest

from service.fake_operated import FakeOperated
from turnout.errors import FileProblem
from turnout.service.operator import app as module
from turnout.service.operator import guard as passwords


@pytest.fixture
def operated():
    return FakeOperated(rounds=40)


# The password


def test_a_password_file_is_for_its_owner_alone(tmp_path):
    path = tmp_path / "password"
    made = passwords.new_password_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert passwords.read_password(path) == made
    assert passwords.matches(made, passwords.password_hash(path))
    with pytest.raises(FileProblem, match="File exists"):
        passwords.new_password_file(path)
    path.chmod(0o640)
    with pytest.raises(FileProblem, match="others may read"):
        passwords.read_password(path)


def test_a_password_file_may_hold_the_hash(tmp_path):
    path = tmp_path / "password"
    path.touch(0o600)
    path.write_text(passwords.hashed("open sesame") + "\n")
    assert passwords.matches("open sesame", passwords.password_hash(path))
    for content, said in (("", "holds no password"), ("\n", "holds no password")):
        path.write_text(content)
        with pytest.raises(FileProblem, match=said):
            passwords.password_hash(path)
    with pytest.raises(FileProblem, match="cannot be read"):
        passwords.read_password(tmp_path / "none")


def test_passwords_are_salted_and_bounded():
    assert passwords.hashed("same") != passwords.hashed("same")
    assert passwords.generate() != passwords.generate()
    stored = passwords.hashed("p" * 200)
    assert not passwords.matches("p" * 201, stored)
    for bad in ("", "plain", "scrypt$99999999$8$1$c2FsdHNhbHQ=$aGFzaGhhc2g="):
        with pytest.raises(ValueError, match="password hash must be"):
            passwords.matches("x", bad)
    for bad in ("", "p" * 201):
        with pytest.raises(ValueError, match="password must be"):
            passwords.hashed(bad)


def test_a_bad_hash_is_refused_at_the_start(operated):
    with pytest.raises(ValueError, match="password hash must be"):
        module.operator_app(operated, password_hash="plain")
