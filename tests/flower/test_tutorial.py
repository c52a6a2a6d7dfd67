"""The tutorial's diff applies to the quickstart-shaped app, has fewer than ten lines, and does what the page says."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from flower.simulation_link import LocalSuperLink

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "tutorial-flower.md"
APP = HERE / "quickstart_app"

RUN = """
import json, logging, os, tomllib
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
from quickstart.client_app import app as client_app
from quickstart.server_app import app as server_app
from turnout.flower import run_in_process

told = []

class Note(logging.Handler):
    def emit(self, record):
        told.append(record.getMessage())

logging.getLogger("flwr").handlers = [Note()]
with open("pyproject.toml", "rb") as file:
    config = tomllib.load(file)["tool"]["flwr"]["app"]["config"]
run_in_process(server_app, client_app, 20, run_config=config)
print(json.dumps(told))
"""


def diff():
    (found,) = re.findall(r"```diff\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return found


@pytest.fixture
def app(tmp_path):
    return Path(shutil.copytree(APP, tmp_path / "app", ignore=shutil.ignore_patterns("__pycache__")))


def patch(app):
    done = subprocess.run(["git", "apply", "-"], cwd=app, input=diff(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def run(app):
    done = subprocess.run([sys.executable, "-c", RUN], cwd=app, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    slope, intercept = map(float, re.search(r"the line: \[ *(\S+) +(\S+?) *\]", done.stdout).groups())
    assert (slope, intercept) == pytest.approx((2.0, 1.0), abs=0.1)
    return json.loads(done.stdout.splitlines()[-1])


def volunteers(log):
    return [int(number) for number in re.findall(r"configure_train: (\d+) of 20 nodes participate", log)]


def test_the_diff_has_fewer_than_ten_lines():
    changed = [line for line in diff().splitlines() if re.match(r"[+-](?!\+\+|--)", line)]
    assert 0 < len(changed) < 10
    assert "Seven lines" in PAGE.read_text()
    assert len(changed) == 7


def test_the_app_runs_before_and_after(app):
    assert sum("configure_train: Sampled 6 nodes" in line for line in run(app)) == 30
    patch(app)
    told = run(app)
    turnout = volunteers("\n".join(told))
    assert len(turnout) == 30
    assert len(set(turnout)) > 1
    assert sum(turnout[10:]) / 20 == pytest.approx(6, abs=1)
    (shown,) = re.findall(r"(configure_train: .* not heard)", PAGE.read_text())
    assert shown in told


def test_what_the_page_shows_is_in_the_app():
    page = PAGE.read_text()
    for file in ("client_app.py", "server_app.py"):
        for line in (APP / "quickstart" / file).read_text().splitlines():
            if line.startswith(("@app.train", "@app.main", "def train", "def main", "    strategy =")):
                assert line.strip() in page
    config = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    for key in ("num-server-rounds", "local-epochs", "lr"):
        assert f'"{key}": {config[key]}' in page


@pytest.mark.deployment
def test_flwr_run_as_on_the_page_gives_the_same_turnout(app, tmp_path):
    """The commands of the page, literally, where `flwr` has never run: it starts a SuperLink of its own."""
    patch(app)
    in_process = volunteers("\n".join(run(app)))
    (block,) = re.findall(r"```console\n([^`]*\$ flwr run [^`]*)```", PAGE.read_text())
    commands = [line.removeprefix("$ ") for line in block.splitlines()]
    with LocalSuperLink(tmp_path) as link:
        assert volunteers(link.follow(app, commands)) == in_process
