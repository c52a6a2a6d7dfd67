import numpy as np
import pytest

from turnout import optimum, paper_population, read_population
from turnout.errors import FileProblem

GROUPS = """
[population]
seed = 3
[[population.groups]]
clients = 40
cost = { 2 = { uniform = [1, 2] } }
[[population.groups]]
clients = 60
weight = 7400
cost = { 1 = 5, 4 = { lognormal = [2, 0.5] }, 6 = { choice = [1, 2] } }
"""


def test_the_papers_population_is_pinned():
    """Paper: Eq. (11)."""
    costs = paper_population(seed=0).costs
    generator = np.random.default_rng(0)
    a, b = generator.uniform(0, 40, 1200), generator.uniform(0, 40, 1200)
    assert costs.coefficients[0].tolist() == [a[0], 0, 0]
    assert costs.coefficients[300].tolist() == [0, a[300] / 2, 0]
    assert costs.coefficients[600].tolist() == [0, a[600] / 3, b[600]]
    assert costs.coefficients[900].tolist() == [b[900], 0, 0]
    with pytest.raises(ValueError, match="multiple of 4"):
        paper_population(clients=10)


def test_groups_from_toml(tmp_path):
    path = tmp_path / "clients.toml"
    path.write_text(GROUPS)
    population = read_population(path)
    assert len(population) == 100
    assert population.costs.powers == (1, 2, 4, 6)
    table = population.costs.coefficients
    assert np.all((table[:40, 1] >= 1) & (table[:40, 1] <= 2))
    assert np.all(table[40:, 0] == 5)
    assert set(table[40:, 3]) == {1.0, 2.0}
    assert population.weights[0] == 1
    assert population.weights[99] == 7400
    again, other = read_population(path), read_population(path, seed=4)
    np.testing.assert_array_equal(again.costs.coefficients, table)
    assert not np.array_equal(other.costs.coefficients, table)
    optimum(population.problem(1000))


def test_tables_round_trip(tmp_path):
    text = "x^2,x^4,weight\n1.5,0,3\n0,2,1\n"
    (tmp_path / "clients.csv").write_text(text)
    found = read_population(tmp_path / "clients.csv")
    assert found.costs.coefficients.tolist() == [[1.5, 0], [0, 2]]
    assert found.weights.tolist() == [3, 1] or found.problem(1).weights.tolist() == [3, 1]
    np.savez(tmp_path / "clients.npz", coefficients=found.costs.coefficients, powers=[2, 4], weights=[3, 1])
    again = read_population(tmp_path / "clients.npz")
    np.testing.assert_array_equal(again.costs.coefficients, found.costs.coefficients)
    assert read_population("paper", seed=1, clients=40).costs.coefficients[0, 0] > 0


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", "x^2\n", "holds no clients"),
        ("a.csv", "x^2,colour\n1,2\n", "unknown column 'colour'"),
        ("a.csv", "x^2\n1\ntwo\n", "line 3"),
        ("a.csv", "x^2,x^4\n1\n", "line 2"),
        ("a.npz", "not a zip", "cannot be read as .npz"),
        ("a.toml", "[population\n", "not a TOML file"),
        ("a.xlsx", "", "'paper', or a .toml, .csv or .npz file"),
        ("a.toml", GROUPS + "[other]\n", "other is not a known setting"),
        ("a.toml", GROUPS.replace("clients = 40", "clients = 0"), "1 or more"),
        ("a.toml", GROUPS.replace("clients = 40", "client = 40"), "groups[0].clients is missing"),
        ("a.toml", GROUPS.replace("uniform = [1, 2]", "unifrom = [1, 2]"), "uniform = [low, high]"),
        ("a.toml", GROUPS.replace("uniform = [1, 2]", "uniform = [1]"), "correct the numbers"),
        ("a.toml", GROUPS.replace("{ 2 =", "{ x =").replace("cost = { 2", "cost = { x"), "a whole power"),
        ("a.toml", "[population]\nkind='papr'\n", "'paper'"),
        ("a.toml", "[population]\ngroups=[]\n", "population.groups must be one group or more, got none"),
    ],
)
def test_bad_files_say_what_is_wrong(tmp_path, name, content, says):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises((ValueError, FileProblem)) as refusal:
        read_population(path)
    assert says in str(refusal.value)


def test_missing_files_and_needless_options(tmp_path):
    for name in ("no.csv", "no.npz", "no.toml"):
        with pytest.raises(FileProblem, match="cannot be read"):
            read_population(tmp_path / name)
    with pytest.raises(ValueError, match="clients must be left out"):
        read_population(tmp_path / "a.csv", clients=5)
    with pytest.raises(ValueError, match="population seed must be left out"):
        read_population(tmp_path / "a.csv", seed=5)
    np.savez(tmp_path / "other.npz", something=[1])
    with pytest.raises(FileProblem, match="expected the arrays coefficients and powers"):
        read_population(tmp_path / "other.npz")


def test_of_a_whole_runs_file_the_population_is_read(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("rounds = 5\ncapacity = 10\n" + GROUPS + "[mechanism]\nkind = 'clamp'\nepsilon = 1.0\n")
    assert len(read_population(path)) == 100
