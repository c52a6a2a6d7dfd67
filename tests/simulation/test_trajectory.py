"""What a run says of its own cost."""

import pytest

from turnout import Classical, IntegralController, Keep, Prior, Problem, Schedule, Trajectory, optimum, simulate


@pytest.fixture(scope="module")
def moved(paper_problem, paper_server):
    """Half of the clients leave, and half as many are needed."""
    schedule = Schedule(leave={100: slice(0, 1200, 2)}, capacity={100: 300})
    return simulate(paper_problem, Classical(), paper_server, 300, schedule=schedule)


def test_the_gap_is_to_the_optimum_of_the_members(moved, paper_problem, tmp_path):
    best = optimum(Schedule(leave={0: slice(0, 1200, 2)}).problem_at(1, type(paper_problem)(paper_problem.costs, 300)))
    assert moved.best.cost == pytest.approx(best.cost)
    assert moved.gap == pytest.approx(moved.cost[-1] / best.cost - 1.0)
    assert moved.brought == pytest.approx(moved.average[1::2].sum())
    moved.save(tmp_path / "run.npz")
    again = Trajectory.load(tmp_path / "run.npz")
    assert (again.gap, again.brought) == (moved.gap, moved.brought)


@pytest.mark.filterwarnings("ignore:costs from functions")
def test_costs_of_ones_own_have_a_gap_too(tmp_path):
    """They had no problem, and so no turnout of their own: `Problem(problem.costs, run.brought)` was refused."""
    problem = Problem([lambda average, scale=scale: scale * average**2 for scale in (1.0, 2.0, 3.0, 4.0)], 2.0)
    run = simulate(problem, Classical(), IntegralController(0.1, 1.0), 50, start=Prior(0.5))
    assert run.problem is problem
    assert run.brought == pytest.approx(run.average.sum())
    best = optimum(Problem(problem.costs, run.brought))
    assert run.gap_at_own_turnout == pytest.approx(run.cost[-1] / best.cost - 1.0)
    run.save(tmp_path / "run.npz")
    assert Trajectory.load(tmp_path / "run.npz").problem is None  # functions cannot be saved


def test_there_is_none_without_the_problem_or_the_cost(paper_problem):
    server = IntegralController(0.0075, 0.35)
    bare = simulate(paper_problem, Classical(), server, 20, keep=Keep(state=False))
    assert (bare.best, bare.gap, bare.brought) == (None, None, None)
    assert "optimum" not in bare._repr_html_()
    uncosted = simulate(paper_problem, Classical(), server, 20, keep=Keep(cost=False))
    assert uncosted.gap is None
