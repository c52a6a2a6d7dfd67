"""`turnout frontier`: its table, its JSON, its page, and Ctrl-C."""

import json

import pytest
import typer
from typer.testing import CliRunner

from report.browser import chromium, opened
from turnout import paper_population, plan
from turnout.cli.plan import frontier
from turnout.privacy import OTHERS_REPORT, PUBLIC_DESIGN, RELEASED_ONCE, TRUSTED_AGGREGATOR
from turnout.report import frontier_page, frontier_rows, notes

SMALL = ("--clients", 40, "--rounds", 20)

BEYOND = {"every-report": [60.0], "sum": [60.0], "noisy-sum": []}

HELD = f"{TRUSTED_AGGREGATOR}, and {OTHERS_REPORT}, and {PUBLIC_DESIGN}"


@pytest.fixture(scope="module")
def app():
    found = typer.Typer()
    found.command()(frontier)
    return found


@pytest.fixture
def few(monkeypatch):
    """Few totals, so that it is quick."""
    whole = plan.growing
    monkeypatch.setattr(
        plan,
        "growing",
        lambda *given, **named: whole(*given, **named, totals=[2.0, 4.0], beyond=BEYOND[named["observer"]]),
    )


def call(app, *arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.deployment
def test_json_of_all_observers_and_a_page(app, few, tmp_path):
    page = tmp_path / "frontier.html"
    done = call(app, *SMALL, "--honest", 30, "--crowds", "60", "--check", 1, "--json", "-o", page)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.output)
    server, sums, noisy = facts["frontiers"]
    assert (noisy["observer"], noisy["honest"], len(noisy["floors"])) == ("noisy-sum", None, 2)
    assert [(curve["name"], curve["clients"]) for curve in noisy["curves"]] == [
        ("noise, 60 clients", 60), ("memoized", 40)
    ]  # fmt: skip
    assert all(len(point["turnout"]["measured"]) == 1 for curve in noisy["curves"][:1] for point in curve["points"])
    assert (server["observer"], server["honest"], len(server["floors"])) == ("every-report", None, 2)
    assert (sums["observer"], sums["honest"], sums["floors"]) == ("sum", 30, [])
    assert all(len(point["measured"]) == 1 for curve in server["curves"] for point in curve["points"])
    assert facts["output"] == str(page)
    assert not facts["interrupted"]
    text = page.read_text()
    trust = "an aggregator that you trust hides single reports"
    assert text.count(f"If {trust}: against an observer of the sum alone, with 30 honest others") >= 3
    assert f"The totals of clamp, randomized-response hold, if {HELD}." in text
    assert f"The totals of memoized, learned-memoized hold, if {RELEASED_ONCE}, and {PUBLIC_DESIGN}." in text
    assert sums["curves"][0]["assumptions"] == [TRUSTED_AGGREGATOR, OTHERS_REPORT, PUBLIC_DESIGN]
    for said in ("If an aggregator that you trust adds the noise", "What the turnout pays", "by the noise alone"):
        assert said in text
    for said in ("no mechanism can be here", "no floor is known", "in brackets the mean of 1 simulated runs"):
        assert said in text


def test_the_table(app, few):
    done = call(app, *SMALL, "--observer", "every-report")
    assert done.exit_code == 0, done.output
    assert "cost gap by total epsilon over 20 rounds at delta 1e-06" in done.output
    assert "tracking-" in done.output
    assert "classical has no total epsilon at all: gap 0.00 %" in done.output
    assert "choosing clients at random gives away nothing" in done.output


def test_the_table_against_the_sum_is_headed_by_its_assumption(app, few):
    done = call(app, *SMALL, "--observer", "sum")
    first, *_ = done.output.splitlines()
    trust = "If an aggregator that you trust hides single reports"
    assert first == f"{trust}: against an observer of the sum alone, with 38 honest others"
    assert f"the totals of clamp, randomized-response hold, if {HELD}" in done.output


def test_the_tables_of_sums_with_noise(app, few):
    done = call(app, *SMALL, "--observer", "noisy-sum", "--crowds", "40, 60")
    assert done.exit_code == 0, done.output
    first, *_ = done.output.splitlines()
    trust = "If an aggregator that you trust adds the noise and shows nothing else"
    assert first == f"{trust}: against an observer of the sums with noise"
    assert (
        "error of the turnout by total epsilon: root mean square, of the capacity, once it has settled" in done.output
    )
    assert "by the" in done.output
    assert (
        "the totals of noise, 40 clients, noise, 60 clients hold, if an aggregator that you trust adds" in done.output
    )
    assert "sums with noise go below it" in done.output


def test_no_value_is_cut_on_a_narrow_screen(app, few, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    done = call(app, *SMALL, "--observer", "noisy-sum", "--crowds", "40,60,80,100,200")
    assert done.exit_code == 0, done.output
    assert "…" not in done.output
    assert [row for row in done.output.splitlines() if row.count(" %") > 10]


def test_a_file_of_simulate_gives_population_and_rounds(app, few, tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(
        'rounds = 30\ncapacity = 10\n[population]\nkind = "paper"\nclients = 40\n[mechanism]\nkind = "classical"\n'
    )
    facts = json.loads(call(app, file, "--observer", "sum", "--json").output)["frontiers"][0]
    assert (facts["rounds"], facts["capacity"], facts["clients"]) == (30, 10, 40)
    assert "clamp around 0.25" in [curve["name"] for curve in facts["curves"]]


def test_ctrl_c_keeps_what_is_done(app, monkeypatch):
    whole = plan.growing

    def stopped(*given, **named):
        for found in whole(*given, **named, totals=[2.0], beyond=[]):
            yield found
            if found.curves and found.curves[-1].points:
                raise KeyboardInterrupt

    monkeypatch.setattr(plan, "growing", stopped)
    done = call(app, *SMALL, "--json")
    assert done.exit_code == 130
    facts = json.loads(done.output)
    assert facts["interrupted"]
    (only,) = facts["frontiers"]
    assert [curve["name"] for curve in only["curves"]] == ["clamp"]
    assert "interrupted" in call(app, *SMALL).output


def test_a_page_of_hardly_anything():
    first = next(plan.growing(paper_population(0, 40).problem(20), 20)).facts()
    assert frontier_rows(first) == (["total epsilon"], [])
    assert "chosen at random" in frontier_page([first]).html()
    assert len(notes(first)) == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--observer", "nobody"], "--observer must be every-report, sum, noisy-sum or all"),
        (["--observer", "every-report", "--honest", 3], "--honest must be given with --observer sum or all"),
        (["--observer", "noisy-sum", "--honest", 3], "--honest must be given with --observer sum or all"),
        (["--observer", "sum", "--crowds", "40"], "--crowds must be given with --observer noisy-sum or all"),
        (["--crowds", "80,40"], "--crowds must be numbers of clients of at least 3, rising"),
        (["--crowds", "40,many"], "--crowds must be numbers of clients of at least 3, rising, got '40,many'"),
        (["--honest", 1199], "honest must be from 0 to 1198"),
        (["--rounds", 3], "rounds must be 10 or more"),
        (["--delta", 0], "delta must be above 0"),
        (["--clients", 81], "multiple of 4"),
    ],
)
def test_bad_input(app, few, arguments, says):
    assert says in str(call(app, *arguments).exception)


@pytest.mark.deployment
def test_the_page_in_a_browser(tmp_path):
    problem = paper_population(0, 40).problem(20)
    asked = {"totals": [2.0, 4.0], "check": 1}
    crowds = {"noisy-sum": [40]}
    found = [
        plan.frontier(problem, 20, observer=one, beyond=BEYOND[one], crowds=crowds.get(one), **asked).facts()
        for one in BEYOND
    ]
    path = frontier_page(found).save(tmp_path / "page.html")
    with chromium() as browser:
        for scheme, width in (("light", 1100), ("dark", 360)):
            with opened(browser, path, scheme=scheme, width=width) as view:
                view.assert_healthy()
                assert len(view.plots()) == 4
