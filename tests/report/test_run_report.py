"""The page for saved runs: whatever they kept, and as a reader sees it."""

import re
import sys

import numpy as np
import pytest

from report.browser import WIDTHS, chromium, opened
from report.test_page import figures
from turnout import (
    Classical,
    FallingGainController,
    IntegralController,
    Keep,
    PaperCoin,
    PolynomialCosts,
    Prior,
    Problem,
    Schedule,
    SelfTuningController,
    SumNoise,
    Trajectory,
    optimum,
    paper_population,
    simulate,
)
from turnout.algorithm import Memoized
from turnout.cli.show import report, run_names
from turnout.errors import FileProblem, MissingExtra
from turnout.report.run_plots import MOST_STRETCHES, moving_mean, stretches
from turnout.report.run_report import run_page


@pytest.fixture(scope="module")
def runs(paper_problem, paper_server):
    """Runs of every kind, by name."""
    weights = np.arange(1, 41)
    weighted = Problem(PolynomialCosts(np.linspace([1.0], [5.0], 40), powers=(2,)), 400, weights)
    moves = Schedule(join={200: slice(1100, 1200)}, leave={500: slice(0, 300)}, capacity={300: 400})
    followed = Keep(every=20, averages=[0, 300, 600, 900])
    all_followed = Keep(every=50, averages="all", distance_to=optimum(paper_problem).average)
    return {
        "classical": simulate(paper_problem, Classical(), paper_server, 1000, keep=followed),
        "private": simulate(paper_problem, PaperCoin(3.5), paper_server, 3000, keep=followed),
        "by client": simulate(paper_problem, PaperCoin(np.linspace(2, 4, 1200)), paper_server, 50),
        "moves": simulate(paper_problem, PaperCoin(2.5), paper_server, 800, schedule=moves, keep=all_followed),
        "weighted <b>": simulate(weighted, Classical(), IntegralController(0.0003, 0.05), 400, keep=Keep(averages=[1])),
        "bare": simulate(paper_problem, Classical(), paper_server, 150, keep=Keep(cost=False, state=False)),
        "one round": simulate(paper_problem, Classical(), paper_server, 1),
        "noise": simulate(
            paper_problem,
            Classical(),
            FallingGainController(0.01, 10.0),
            900,
            start=Prior(0.5),
            noise=SumNoise(140.0, every=2),
        ),
    }


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


def text(page):
    """What a page says, without its tags and scripts."""
    html = re.sub(r"<(script|style)\b.*?</\1>", "", page.html(), flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_all_runs(browser, runs, tmp_path, scheme, width):
    page = run_page(list(runs.values()), list(runs))
    with opened(browser, page.save(tmp_path / "runs.html"), scheme=scheme, width=width) as view:
        view.assert_healthy()
        assert len(view.plots()) == len(figures(page)) == 12
        levels = view.look("[...document.querySelectorAll('h1,h2,h3')].map(found => Number(found.tagName[1]))")
        assert levels[0] == 1
        assert max(np.diff(levels)) == 1
        names = view.look("[...document.querySelectorAll('#figure-1 .legendtext')].map(found => found.textContent)")
        assert names == [*runs, "capacity"]


@pytest.mark.parametrize("name", ["private", "by client", "moves", "weighted <b>", "bare", "one round", "noise"])
def test_a_browser_shows_each_run_alone(browser, runs, tmp_path, name):
    with opened(browser, run_page([runs[name]], [name]).save(tmp_path / "run.html"), width=WIDTHS["phone"]) as view:
        view.assert_healthy()


def test_a_double_click_shows_the_start(browser, runs, tmp_path):
    """As the caption says: round 0, in which all 1200 take part, is out of sight at first."""
    highest = "document.getElementById('figure-1')._fullLayout.yaxis.range[1]"
    with opened(browser, run_page([runs["private"]], ["private"]).save(tmp_path / "run.html")) as view:
        assert view.look(highest) < 1000
        view.page.dblclick("#figure-1 .nsewdrag")
        view.page.wait_for_function(f"{highest} > 1200")
        view.page.emulate_media(color_scheme="dark")  # what the reader chose survives a change of colours
        view.settle()
        assert view.look(highest) > 1200
        view.assert_healthy()


def test_the_facts_are_those_of_the_run(runs, paper_optimum):
    run = runs["private"]
    said = text(run_page([run], ["private"]))
    tail = run.last(400)
    assert f"Turnout {tail.mean():.1f} ± {tail.std():.1f}, last 400 rounds" in said
    assert f"Final signal {run.signal[-1]:.4g} optimal price {paper_optimum.price:.4g}" in said
    gap = f"{100 * (run.cost[-1] / paper_optimum.cost - 1):+.2f} %".replace("-", "−")
    assert f"Total cost {run.cost[-1]:,.2f} {gap} off the optimum" in said
    assert "mechanism › beta 3.5" in said
    together = text(run_page([runs["classical"], run], ["classical", "private"]))
    assert "Runs 2" in together
    assert "Rounds 1,000–3,000" in together
    assert together.index("mechanism › beta – 3.5") < together.index("controller › gain")  # what differs comes first


def test_the_true_turnout_is_told_apart_from_what_the_server_saw(runs):
    run = runs["noise"]
    page = run_page([run], ["noise"])
    said, tail = text(page), run.seen[-400:]
    opened = tail[~np.isnan(tail)]
    assert f"True turnout {run.last(400).mean():.1f} ±" in said
    assert f"Server saw {opened.mean():.1f} ± {opened.std():.1f}, with noise" in said
    assert f"{100 * run.gap_at_own_turnout:+.2f} % at its own turnout" in said
    assert "The server does not know this turnout: further down is what it saw instead." in said
    (shown,) = [figure for figure in figures(page) if "opened sum, with noise" in str(figure)]
    sums, true = shown["data"]
    assert (sums["name"], true["name"]) == ("opened sum, with noise", "true turnout, moving mean")
    assert len(sums["x"]) == 450
    together = text(run_page([runs["classical"], run], ["classical", "noise"]))
    assert "The server of noise does not know this turnout" in together
    assert f"– {runs['classical'].signal[-1]:.4g}" in together  # it saw the turnout itself
    assert "Server saw" not in text(run_page([runs["classical"]], ["classical"]))


def test_too_few_are_named_where_the_cost_is_below_the_optimum(paper_problem, paper_server):
    short = simulate(paper_problem, Classical(), paper_server, 10)
    longer = simulate(paper_problem, Classical(), paper_server, 10, start=Prior(0.2, 10))
    told = f"averages add up to {short.brought:.4g} of 600"
    assert f"off the optimum: {told}" in text(run_page([short], ["short"]))
    assert f"Closest to the optimum −12.80 % short: {told}" in text(run_page([short, longer], ["short", "longer"]))


def test_long_numbers_fit(browser, tmp_path):
    """A tile's value stands on one line, and no column of three weighted runs needs a scrollbar."""
    generator = np.random.default_rng(3)
    costs = PolynomialCosts(generator.uniform(1.0, 3.0, (300, 1)), (2,))
    problem = Problem(costs, 400_000, generator.choice([3000, 7000], 300))
    every = [
        simulate(problem, mechanism, SelfTuningController(), 300)
        for mechanism in (Classical(), PaperCoin(3.5), PaperCoin(2))
    ]
    names = ["classical", "paper coin, 3.5", "paper coin, 2"]
    with opened(browser, run_page(every, names).save(tmp_path / "three.html"), width=1200) as view:
        assert view.look("(box => box.scrollWidth - box.clientWidth)(document.querySelector('.scroll'))") == 0
    for width in WIDTHS.values():
        with opened(browser, run_page(every[:1], names[:1]).save(tmp_path / "one.html"), width=width) as view:
            view.assert_healthy()
            tall = "[...document.querySelectorAll('.facts .value')].map(one => one.getBoundingClientRect().height)"
            assert len(set(view.look(tall))) == 1


def test_what_was_not_kept_is_left_out(runs):
    said = text(run_page([runs["bare"]], ["bare"]))
    for missing in ("Total cost", "optimum", "How often clients", "averages were recorded", "Distance"):
        assert missing not in said
    assert "Distance from the reference" in text(run_page([runs["moves"]], ["moves"]))
    assert "6 of the 1,200 clients" in text(run_page([runs["moves"]], ["moves"]))


def test_references_are_shared_only_by_runs_that_share_them(runs):
    def names(which, figure):
        page = run_page([runs[name] for name in which], which)
        return [trace["name"] for trace in figures(page)[figure]["data"] if trace["line"]["color"] == "var(--ink)"]

    assert names(["classical", "private", "bare"], 2) == ["optimal price"]
    assert names(["classical", "moves"], 2) == ["optimal price of classical", "optimal price of moves"]


def test_runs_that_need_different_numbers_are_compared_by_share(runs):
    page = run_page([runs["classical"], runs["weighted <b>"]], ["a", "b"])
    assert figures(page)[1]["layout"]["xaxis"]["title"]["text"] == "Turnout (% of capacity)"
    page = run_page([runs["weighted <b>"]], ["b"])
    assert figures(page)[1]["layout"]["xaxis"]["title"]["text"] == "Turnout (sum of weights)"


def test_the_optimum_is_that_of_the_members(runs, paper_problem):
    found = stretches(runs["moves"])
    assert [(one.first, one.stop, one.capacity) for one in found] == [
        (0, 200, 600.0),
        (200, 300, 600.0),
        (300, 500, 400.0),
        (500, 800, 400.0),
    ]
    assert [int(one.members.sum()) for one in found] == [1100, 1200, 1200, 900]
    there = Problem(paper_problem.costs[np.arange(300, 1200)], 400)
    assert found[-1].best.cost == optimum(there).cost
    assert found[1].best.cost == optimum(paper_problem).cost
    assert stretches(runs["bare"])[0].best is None


def test_too_many_stretches_to_solve_them_all(paper_problem, paper_server):
    restless = Schedule(capacity={when: 500 + when for when in range(1, MOST_STRETCHES + 2)})
    run = simulate(paper_problem, Classical(), paper_server, 40, schedule=restless)
    assert [one.best is not None for one in stretches(run)] == [False] * (MOST_STRETCHES + 1) + [True]
    assert "Total cost" in text(run_page([run], ["restless"]))


def test_absent_clients_have_no_average(runs):
    page = run_page([runs["moves"]], ["moves"])
    lines = {trace["name"]: trace for trace in figures(page)[-1]["data"]}
    joined, left = lines["client 1199"], lines["client 0"]
    assert [x for x, y in zip(joined["x"], joined["y"], strict=True) if y is None] == [0, 50, 100, 150]
    assert [x for x, y in zip(left["x"], left["y"], strict=True) if y is None] == [500, 550, 600, 650, 700, 750, 799]


def test_the_moving_mean():
    places, means, window = moving_mean(np.arange(1000.0))
    assert window == 10
    assert (places[0], places[-1]) == (0, 999)
    inside = (places > 5) & (places < 994)
    assert np.allclose(means[inside], places[inside] - 0.5)


def test_a_long_run_makes_a_small_page(paper_server):
    problem = paper_population(0, 40).problem(20)
    run = simulate(problem, Classical(), IntegralController(0.1, 1.0), 200_000, keep=Keep(every=10))
    added = len(run_page([run], ["long"]).html()) - len(
        run_page([simulate(problem, Classical(), paper_server, 1)], ["a"]).html()
    )
    assert added < 300_000


def test_bad_runs(runs):
    with pytest.raises(ValueError, match="trajectories must be one or more"):
        run_page([], [])
    for names in (["a"], ["a", "a"]):
        with pytest.raises(ValueError, match="names must be different, one for each run"):
            run_page([runs["bare"], runs["private"]], names)


def test_the_command(runs, tmp_path, capsys, monkeypatch):
    for name in ("classical", "bare"):
        runs[name].save(tmp_path / f"{name}.npz")
    files = [tmp_path / "classical.npz", tmp_path / "bare.npz"]
    report(files, tmp_path / "out.html")
    assert capsys.readouterr().out == f"{tmp_path / 'out.html'}\n"
    loaded = [Trajectory.load(path) for path in files]
    assert (tmp_path / "out.html").read_text() == run_page(loaded, ["classical", "bare"]).html()
    with pytest.raises(FileProblem, match="no folder"):
        report(files, tmp_path / "no" / "out.html")
    with pytest.raises(FileProblem, match="no such file"):
        report([tmp_path / "none.npz"], tmp_path / "new.html")
    with pytest.raises(ValueError, match="runs must be named once each"):
        report([files[0], files[0]], tmp_path / "new.html")
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    with pytest.raises(MissingExtra, match="a report needs plotly"):
        report(files, tmp_path / "new.html")
    assert not (tmp_path / "new.html").exists()
    assert run_names([tmp_path / "a.npz", tmp_path / "b.npz"]) == ["a", "b"]


def test_a_mechanism_with_levels_has_a_page(tmp_path):
    """Lists of numbers are settings too, also after a run was saved and read again."""
    mechanism = Memoized(6.0, price=9.97, levels=(0.2, 0.5, 0.9))
    run = simulate(paper_population(clients=40).problem(20), mechanism, IntegralController(0.2, 3.0), 20)
    run.save(tmp_path / "run.npz")
    for one in (run, Trajectory.load(tmp_path / "run.npz")):
        assert "0.2; 0.5; 0.9" in text(run_page([one], ["run"]))
