import builtins
import itertools

import numpy as np
import pytest

import turnout
from turnout import Classical, Keep, PaperCoin, Prior, Problem, Schedule, SelfTuningController, SumNoise
from turnout.errors import FileProblem, MissingExtra
from turnout.report.run_plots import moving_mean

pyplot = pytest.importorskip("matplotlib.pyplot")
pyplot.switch_backend("Agg")

PROBLEM = turnout.paper_population(clients=80).problem(40)
SERVER = SelfTuningController()


@pytest.fixture(scope="module")
def run():
    return turnout.simulate(PROBLEM, PaperCoin(3.5), SERVER, 400, keep=Keep(every=10), engine="numpy")


@pytest.fixture(scope="module")
def other():
    return turnout.simulate(PROBLEM, Classical(), SERVER, 300, keep=Keep(every=10), engine="numpy")


def titles(figure):
    return [panel.get_title(loc="left") for panel in figure.axes]


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def drawn(panel):
    return [np.asarray(line.get_ydata(), dtype=float) for line in panel.lines]


def test_one_run_in_one_call(run):
    figure = turnout.plot(run)
    best = turnout.optimum(PROBLEM)
    assert titles(figure) == ["Turnout of 80 clients", "Turnout at the end", "Signal", "Total cost"]
    over_time, _, signal, cost = map(drawn, figure.axes)
    np.testing.assert_array_equal(over_time[0], run.participants)
    np.testing.assert_array_equal(over_time[-1], [40.0, 40.0])
    np.testing.assert_array_equal(signal[0], run.signal)
    np.testing.assert_allclose(signal[1], best.price)
    np.testing.assert_array_equal(cost[0], run.cost)
    np.testing.assert_allclose(cost[1], best.cost)
    gap = 100.0 * (run.cost[-1] / best.cost - 1.0)
    assert legend(figure) == [
        f"paper-coin, beta 3.5: {abs(gap):.2f} % {'above' if gap > 0 else 'below'} the optimum",
        "capacity",
    ]


def test_with_noise_the_true_turnout_and_what_the_server_saw_are_told_apart(run):
    noisy = turnout.simulate(PROBLEM, Classical(), SERVER, 300, noise=SumNoise(20.0, every=2), engine="numpy")
    figure = turnout.plot({"noise": noisy, "exact": run})
    assert titles(figure)[:3] == [
        "True turnout of 80 clients",
        "True turnout at the end",
        "What the server saw: sums with noise",
    ]
    sums, true = drawn(figure.axes[2])
    np.testing.assert_array_equal(sums, noisy.seen[1::2])
    assert [line.get_text() for line in figure.axes[2].get_legend().get_texts()] == [
        "opened sums",
        "true turnout, moving mean",
    ]
    np.testing.assert_array_equal(true, moving_mean(noisy.participants)[1])
    np.testing.assert_array_equal(drawn(turnout.plot(noisy).axes[0])[0], noisy.participants)


def test_the_shares_of_the_last_rounds_add_up(run):
    figure = turnout.plot(run)
    filled, outline = (patch.get_data().values for patch in figure.axes[1].patches)
    np.testing.assert_array_equal(filled, outline)
    assert outline.sum() == pytest.approx(100.0)


def test_several_runs_by_name_or_by_their_mechanisms(run, other):
    assert [label.split(":")[0] for label in legend(turnout.plot([other, run]))] == [
        "classical",
        "paper-coin, beta 3.5",
        "capacity",
    ]
    assert [label[:2] for label in legend(turnout.plot([run, run]))] == ["1:", "2:", "ca"]
    figure = turnout.plot({"calm": other, "private": run})
    assert [label.split(":")[0] for label in legend(figure)] == ["calm", "private", "capacity"]
    assert len({line.get_color() for line in figure.axes[2].lines}) == 3  # two runs, and the price that they share


def test_runs_that_need_different_numbers_are_compared_by_share(run):
    fewer = turnout.simulate(turnout.paper_population(clients=40).problem(10), Classical(), SERVER, 100, engine="numpy")
    figure = turnout.plot([run, fewer])
    assert figure.axes[0].get_ylabel() == figure.axes[1].get_xlabel() == "% of capacity"
    assert titles(figure)[0] == "Turnout"
    assert drawn(figure.axes[0])[1].tolist() == [100.0, 100.0]


def test_the_end_is_what_comes_after_the_last_change():
    moves = Schedule(leave={100: np.arange(40)}, capacity={150: 10})
    run = turnout.simulate(PROBLEM, Classical(), SERVER, 200, schedule=moves, start=Prior(0.5), engine="numpy")
    figure = turnout.plot(run)
    (filled, _) = (patch.get_data() for patch in figure.axes[1].patches)
    assert filled.edges[0] <= run.participants[150:].min() <= run.participants[150:].max() <= filled.edges[-1]
    assert filled.edges[-1] - filled.edges[0] < 2 * np.ptp(run.participants[150:]) + 2
    assert drawn(figure.axes[0])[-1].tolist() == [40.0] * 4 + [10.0] * 2  # needed, stretch by stretch


def test_what_was_not_kept_is_left_out():
    run = turnout.simulate(PROBLEM, Classical(), SERVER, 1, keep=Keep(cost=False, state=False), engine="numpy")
    figure = turnout.plot(run)
    assert titles(figure) == ["Turnout of 80 clients", "Turnout at the end", "Signal"]
    assert legend(figure) == ["classical", "capacity"]


def test_weights_are_named_and_their_ticks_are_apart():
    heavy = Problem(PROBLEM.costs, 400_000, np.full(80, 10_000))
    figure = turnout.plot(turnout.simulate(heavy, Classical(), SERVER, 200, engine="numpy"))
    over_time, at_the_end = figure.axes[:2]
    assert over_time.get_ylabel() == "sum of weights"
    figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in at_the_end.get_xticklabels()]
    assert all(left.x1 + 5 < right.x0 for left, right in itertools.pairwise(boxes))
    assert "400,000" in [label.get_text() for label in at_the_end.get_xticklabels()]


def test_a_cost_below_the_optimum_is_explained():
    """Too few came: no result, but a run that is too short."""
    short = turnout.simulate(PROBLEM, Classical(), SERVER, 10, start=Prior(0.1, 30), engine="numpy")
    assert short.gap < 0
    told = f"{-100 * short.gap:.2f} % below the optimum: averages add up to {short.average.sum():.4g} of 40"
    assert legend(turnout.plot(short))[0] == f"classical: {told}"
    assert told in short._repr_html_()


def test_a_forecast_over_a_run(run):
    forecast = turnout.predict(PROBLEM, PaperCoin(3.5), 400, SERVER)
    figure = turnout.plot(run, forecast=forecast)
    for panel, expected in ((figure.axes[2], forecast.path.signal), (figure.axes[3], forecast.path.cost)):
        np.testing.assert_array_equal(drawn(panel)[-1], expected)
        assert [text.get_text() for text in panel.get_legend().get_texts()][-1] == "forecast"


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_it_is_saved_whole_and_an_svg_always_the_same(run, tmp_path, suffix):
    path = tmp_path / f"run{suffix}"
    turnout.plot(run, path=path)
    first = path.read_bytes()
    starts = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
    assert first.startswith(starts[suffix])
    if suffix == ".svg":
        turnout.plot(run, path=path)
        assert path.read_bytes() == first
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_light_and_dark(run):
    def brightness(colour):
        return sum(pyplot.matplotlib.colors.to_rgb(colour))

    for dark in (False, True):
        figure = turnout.plot(run, dark=dark)
        paper, ink = figure.get_facecolor(), figure.axes[0].title.get_color()
        assert (brightness(paper) < brightness(ink)) is dark
        assert figure.axes[0].get_facecolor() == paper


def test_what_is_drawn_later_looks_the_same(run, tmp_path):
    """As a notebook does, once the call is over and its settings are gone."""
    turnout.plot(run, dark=True, path=tmp_path / "now.png")
    turnout.plot(run, dark=True).savefig(tmp_path / "later.png", dpi=200)
    now, later = (pyplot.imread(tmp_path / name) for name in ("now.png", "later.png"))
    np.testing.assert_array_equal(now, later)


def test_nothing_piles_up_and_no_setting_of_the_user_changes(run):
    before, settings = pyplot.get_fignums(), dict(pyplot.rcParams)
    turnout.plot(run, dark=True)
    assert pyplot.get_fignums() == before
    assert dict(pyplot.rcParams) == settings


@pytest.mark.parametrize(
    ("runs", "options", "error", "told"),
    [
        ([], {}, ValueError, "runs must be one or more"),
        ([3], {}, ValueError, "got 3: give trajectories"),
        (None, {"path": "run.gif"}, ValueError, "path must be one that ends in .png, .svg, .pdf, got 'run.gif'"),
        (None, {"path": "nowhere/run.png"}, FileProblem, "no folder nowhere"),
    ],
)
def test_errors(run, runs, options, error, told):
    with pytest.raises(error, match=told):
        turnout.plot(run if runs is None else runs, **options)


def test_without_the_library_it_says_what_to_install(run, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"plot\(\) needs matplotlib.*turnout\[lab\]"):
        turnout.plot(run)
