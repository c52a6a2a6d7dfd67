"""The files for people who join: what they name exists, and CI runs what it says it runs."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
GITHUB = ROOT / ".github"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = SETTINGS["project"]
FORMS = sorted(path.name for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def read(path):
    return yaml.safe_load((ROOT / path).read_text())


def pythons():
    """The versions that pyproject.toml says it supports."""
    found = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    return [match[1] for match in found if match]


def test_ci_runs_the_script_on_every_python():
    workflow = read(".github/workflows/ci.yml")
    assert set(workflow[True]) == {"push", "pull_request"}  # to YAML, "on" is true
    (job,) = workflow["jobs"].values()
    assert job["strategy"]["matrix"]["python"] == pythons() == ["3.11", "3.12", "3.13"]
    assert "${{ matrix.python }}" in job["container"]
    assert [step["run"] for step in job["steps"] if ".ci/run" in step.get("run", "")] == ["bash .ci/run"]
    assert PROJECT["requires-python"] == f">={pythons()[0]}"


def test_dependabot_looks_at_actions_and_libraries():
    settings = read(".github/dependabot.yml")
    assert settings["version"] == 2
    assert {one["package-ecosystem"] for one in settings["updates"]} == {"github-actions", "pip"}
    assert all(one["schedule"]["interval"] and one["directory"] == "/" for one in settings["updates"])


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_one_that_github_takes(form):
    fields = read(f".github/ISSUE_TEMPLATE/{form}")
    assert {"name", "description", "body"} <= set(fields)
    asked = [field for field in fields["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in asked}) == len(asked) >= 3
    assert all(field["type"] in ("input", "textarea") and field["attributes"]["label"] for field in asked)


def test_there_are_forms():
    assert FORMS == ["bug.yml", "idea.yml"]


def test_the_citation_names_the_paper_and_us():
    citation = read("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["title"] == PROJECT["name"]
    assert citation["license"] == PROJECT["license"]
    assert citation["authors"] == PROJECT["authors"]
    (paper,) = citation["references"]
    assert [author["family-names"] for author in paper["authors"]] == ["Alam", "Shukla", "Rao"]
    assert paper["title"] == "Near-optimal Differentially Private Client Selection in Federated Settings"
    assert (paper["type"], paper["year"]) == ("conference-paper", 2023)


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "SECURITY.md", ".github/pull_request_template.md"])
def test_what_a_page_names_is_there(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\(([^)#]+)", text):
        assert (ROOT / target).exists(), target
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for target in re.findall(r"\bmake ([a-z-]+)", text):
        assert target in targets, target
    for path in re.findall(r"\b(?:tests|docs|src)/[\w./-]+", text):
        assert (ROOT / path).exists(), path


def test_the_policy_states_the_numbers_as_they_are():
    text = (ROOT / "docs/releasing.md").read_text()
    for name, place, number in (
        ("VERSION", "turnout/service/protocol.py", 1),
        ("VERSION", "turnout/flower/protocol.py", 1),
        ("SCHEMA", "turnout/service/store/store.py", 2),
        ("_FORMAT", "turnout/simulation/trajectory.py", 1),
    ):
        assert f"`{place}`" in text
        assert re.search(rf"^{name} = {number}$", (ROOT / "src" / place).read_text(), re.MULTILINE)
    assert "The store's number is 2, the other three are 1" in text
    for place in re.findall(r"`(turnout/[\w/]+\.py)`", text):
        assert (ROOT / "src" / place).is_file(), place


def test_types_are_strict_in_every_tool():
    strict = next(rules["module"] for rules in SETTINGS["tool"]["mypy"]["overrides"] if "turnout.*" in rules["module"])
    assert sorted(strict) == sorted(["turnout.*", *(path.stem for path in (ROOT / "tools").glob("*.py"))])
