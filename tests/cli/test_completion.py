"""The shell completes commands, options, and the words that options take."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from turnout.algorithm import MECHANISMS
from turnout.cli import app
from turnout.privacy import OBSERVERS
from turnout.simulation import ENGINES

COMMAND = Path(sys.executable).with_name("turnout")


@pytest.fixture
def complete(monkeypatch, capsys):
    """What bash is offered for the last of some words."""

    def offered(*words):
        monkeypatch.setenv("_TURNOUT_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(("turnout", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit) as ended:
            app(prog_name="turnout")
        assert ended.value.code == 0
        return capsys.readouterr().out.split()

    return offered


def test_commands_and_options(complete):
    assert complete("si") == ["simulate"]
    assert {"simulate", "plan", "operate", "join"} <= set(complete(""))
    assert complete("operate", "back") == ["backup"]
    assert complete("simulate", "--mech") == ["--mechanism"]


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("simulate", "--mechanism"), MECHANISMS),
        (("serve", "--mechanism"), MECHANISMS),
        (("attack", "--mechanism"), MECHANISMS),
        (("simulate", "--engine"), ENGINES),
        (("simulate", "--controller"), ("integral", "self-tuning", "falling-gain")),
        (("simulate", "--population"), ("paper", "paper-drawn")),
        (("plan", "--observer"), (*OBSERVERS, "noisy-sum")),
        (("frontier", "--observer"), (*OBSERVERS, "noisy-sum", "all")),
        (("sweep", "--on"), ("cores", "ray")),
        (("serve", "--missing"), ("absent", "last")),
        (("join", "--after-stop"), ("leave", "follow")),
    ],
    ids=" ".join,
)
def test_words_that_options_take(complete, words, names):
    assert complete(*words, "") == list(names)
    first = next(iter(names))
    assert first in complete(*words, first[:3])
    assert complete(*words, "nothing-of-the-kind") == []


@pytest.mark.skipif(not (shutil.which("bash") and COMMAND.exists()), reason="needs bash and an installed turnout")
def test_bash_itself():
    """The script that `--show-completion` prints, in a real shell."""
    script = """
        source <(turnout --show-completion bash)
        COMP_WORDS=(turnout simulate --mechanism cl); COMP_CWORD=3
        _turnout_completion turnout
        echo "${COMPREPLY[@]}"
    """
    there = {"PATH": f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"}
    # The shell is named: a test may run under something that is no shell at all.
    told = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=os.environ | there | told, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["classical", "clamp"]


@pytest.mark.parametrize(
    ("command", "default"),
    [("simulate", "classical"), ("audit", "clamp, at epsilon 1 per report; for noisy-sum, classical")],
)
def test_help_names_all_mechanisms_and_the_default(command, default):
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1"}
    told = subprocess.run([COMMAND, command, "--help"], capture_output=True, text=True, env=environment, check=True)
    words = " ".join(told.stdout.replace("│", " ").split())
    known = ", ".join(sorted(MECHANISMS))
    assert f"One of {known}, or an installed package's. [default: ({default})]" in words
