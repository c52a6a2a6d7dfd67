"""The systemd units of `examples/fleet`, and the backup line of the operator's guide: they say what there is."""

import json
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from service.running import begun
from service.served import self_signed
from turnout.cli import app
from turnout.service.operator.guard import new_password_file
from turnout.service.store.backup import open_store

ROOT = Path(__file__).parents[2]
UNITS = sorted((ROOT / "examples" / "fleet").glob("*.service"))
TURNOUT = Path(sys.executable).with_name("turnout")


def setting(unit, name):
    """Every value of a setting, lines put together."""
    text = re.sub(r"\\\n\s*", " ", unit.read_text())
    return re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)


def command(unit):
    [found] = setting(unit, "ExecStart")
    return shlex.split(found)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_it(unit, tmp_path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    copy = tmp_path / unit.name
    copy.write_text(unit.read_text().replace(command(unit)[0], sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_its_command_is_one(unit, monkeypatch):
    monkeypatch.setenv("TURNOUT_CODE", "abcd")
    _, name, *options = command(unit)
    commands: Any = typer.main.get_command(app)
    found = commands.commands[name]
    found.make_context(name, options)  # raises, if there is no such option


def test_its_first_lines_name_commands_that_there_are():
    commands: Any = typer.main.get_command(app)
    found = [
        shlex.split(line)
        for unit in UNITS
        for line in re.findall(r"^#   sudo -u turnout turnout (.*)$", unit.read_text(), re.MULTILINE)
    ]
    assert ["operate", "init", "/etc/turnout/fleet.toml", "--store", "/var/lib/turnout/run.db"] in found
    for name, part, *options in found:
        commands.commands[name].commands[part].make_context(part, options)


def test_a_plan_s_mechanism_is_allowed_by_the_device_s_unit():
    """A plan proposes a release for a lifetime; a device that does not allow it leaves, with its code used up."""
    [unit] = [unit for unit in UNITS if "agent" in unit.name]
    assert "--epsilon-per-release" in command(unit)
    assert "--epsilon-per-release" in unit.read_text().split("# <-")[1], "among the lines to correct"


def test_both_units_are_as_hard():
    sandboxes = []
    for unit in UNITS:
        lines = unit.read_text().partition("NoNewPrivileges")[2].partition("MemoryMax")[0].splitlines()
        sandboxes.append(lines)
    assert len(sandboxes[0]) > 20
    assert sandboxes[0] == sandboxes[1]


def test_the_coordinator_s_unit_goes_on_with_a_run_whose_capacity_was_changed(tmp_path):
    store = begun(tmp_path / "run.db")
    store.change("me", capacity=5.0)
    store.close()
    self_signed(tmp_path)
    password = new_password_file(tmp_path / "operator.password", hash_only=True)
    unit = ROOT / "examples" / "fleet" / "turnout-coordinator.service"
    words = [re.sub(r"^/(etc|var/lib)/turnout/", f"{tmp_path}/", word) for word in command(unit)]
    words = [TURNOUT, *("0" if word in ("8440", "8441") else word for word in words[1:])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        printed, logged = process.communicate(timeout=30)
    assert "devices connect to https://0.0.0.0:" in said[1]
    assert "operator.password" in said[2]
    assert all(json.loads(line)["event"] for line in [*said, *printed.splitlines(), *logged.splitlines()])
    assert '"stopped: the open round stays open; start it again to continue"' in printed
    assert process.returncode == 0
    assert "plain HTTP" not in logged
    assert password not in "".join(said) + logged


def test_the_guide_s_backup_line_makes_copies_that_restore(tmp_path):
    begun(tmp_path / "run.db").close()
    [line] = re.findall(r"```text\n(17 .*)\n```", (ROOT / "docs" / "operating.md").read_text())
    line = re.sub(r"/var/(lib|backups)/turnout", str(tmp_path), line).replace("\\%", "%")
    line = line.replace("/usr/local/bin/turnout", str(TURNOUT))
    *when, user, rest = line.split(maxsplit=6)
    assert (len(when), user) == (5, "turnout")
    shell = {"PATH": "/usr/bin:/bin"}  # as cron has it
    subprocess.run(["sh", "-euc", rest], env=shell, timeout=60, check=True, capture_output=True)
    [copy] = tmp_path.glob("run-*.db")
    assert re.fullmatch(r"run-\d{8}T\d{4}\.db", copy.name)
    restore = ["operate", "restore", copy, "--store", tmp_path / "back.db"]
    subprocess.run([TURNOUT, *restore], timeout=60, check=True, capture_output=True)
    assert open_store(str(tmp_path / "back.db")).run().name == "test"
