"""The notebook runs from its first cell to its last, and what it says is true. It is kept without outputs."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[1] / "examples" / "first-steps.ipynb"


@pytest.fixture(scope="module")
def notebook():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def test_it_is_a_notebook_without_outputs(notebook):
    """The fields that the format (4.5) asks for; nobody's outputs, and nobody's machine."""
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert notebook["metadata"]["kernelspec"] == {
        "display_name": "Python 3",
        "language": "python",
        "name": "python3",
    }
    names = [cell["id"] for cell in notebook["cells"]]
    assert len(set(names)) == len(names) >= 12
    needed = {"cell_type", "id", "metadata", "source"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            assert set(cell) == needed
        else:
            assert set(cell) == needed | {"execution_count", "outputs"}
            assert cell["cell_type"] == "code"
            assert cell["execution_count"] is None
            assert cell["outputs"] == []
        assert "".join(cell["source"]).strip()
        assert all(line.endswith("\n") for line in cell["source"][:-1])


def test_it_says_what_opens_it(notebook):
    """No extra of turnout brings Jupyter."""
    assert "`pip install jupyterlab`" in "".join(notebook["cells"][0]["source"])


def test_its_cells_run_and_tell_the_truth(notebook, capsys):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    space: dict[str, Any] = {"__name__": "notebook"}
    cells = [("".join(cell["source"]), cell["id"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    shown = [_execute(source, name, space) for source, name in cells]
    assert [type(value).__name__ for value in shown] == [
        "Problem",
        "Optimum",
        "Trajectory",
        "Figure",
        "NoneType",
        "Figure",
        "Figure",
        "Plan",
        "NoneType",
    ]
    assert "no bound per report" in (printed := capsys.readouterr().out)
    assert "pure epsilon 6 per lifetime" in printed
    best, plain, runs = space["best"], space["plain"], space["runs"]
    assert abs(plain.cost[-1] / best.cost - 1.0) < 0.01
    assert runs["the paper's coin"].cost[-1] < runs["clamp, epsilon 2 per report"].cost[-1]
    assert space["forecast"].cost == pytest.approx(runs["the paper's coin"].cost[-1], rel=0.01)
    assert shown[-2].account.epsilon <= 6.0
    before, _, after = space["guesses"]["no privacy"]
    assert after < 0.3 * before  # much is learned without privacy
    before, _, after = space["guesses"]["one release, total epsilon 2"]
    assert after > 0.5 * before  # and little from one release


def _execute(source, name, space):
    """Run a cell, and give back what a notebook would show: the value of its last line, if that is one."""
    tree = ast.parse(source, name)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), space)
    return None if last is None else eval(compile(ast.Expression(last.value), name, "eval"), space)
