"""The mutants that `make mutants` makes, and the list of those that are equivalent."""

import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
from mutation import mutants_of  # noqa: E402

SOURCE = '''"""Not this: 1 < 2."""
LIMIT: int = 3


def half(x: float = 0.5) -> float:
    """Nor this."""
    if x < LIMIT and not x:
        raise ValueError(f"nor {x + 1}")
    print(min(x, 2))
    return x * 2.0


class Thing:
    def __repr__(self):
        return "x" * 2
'''


@pytest.fixture
def found(tmp_path):
    (tmp_path / "small.py").write_text(SOURCE)
    return {mutant.name.partition(":")[2]: mutant for mutant in mutants_of(tmp_path / "small.py")}


def test_typical_mistakes_are_made_and_what_only_speaks_is_left_alone(found):
    assert set(found) == {
        ": 3 -> 4",
        ": 3 -> 2",
        "half: 0.5 -> 1.0",
        "half: x < LIMIT and (not x) -> x < LIMIT or not x",
        "half: x < LIMIT and (not x) -> not (x < LIMIT and (not x))",
        "half: x < LIMIT -> x <= LIMIT",
        "half: x < LIMIT -> x >= LIMIT",
        "half: not x -> x",
        "half: raise ValueError(f'nor {x + 1}') -> pass",
        "half: print(min(x, 2)) -> pass",
        "half: min -> max",
        "half: 2 -> 3",
        "half: 2 -> 1",
        "half: return x * 2.0 -> return None",
        "half: x * 2.0 -> x / 2.0",
        "half: 2.0 -> 4.0",
    }


def test_a_mutant_differs_in_one_place(found):
    for name, mutant in found.items():
        original, changed = SOURCE, mutant.source.decode()
        differing = [pair for pair in zip(original.split("\n"), changed.split("\n"), strict=True) if pair[0] != pair[1]]
        assert len(differing) == 1, name
        compile(changed, "small.py", "exec")


def test_every_equivalent_mutant_exists_and_has_a_reason():
    package = ROOT / "src" / "turnout"
    listed = tomllib.loads((ROOT / "tools" / "mutation_equivalent.toml").read_text())["equivalent"]
    names = {f"{entry['module']}:{entry['place']}: {entry['change']}" for entry in listed}
    assert len(names) == len(listed)
    assert all(entry["reason"].endswith(".") for entry in listed)
    modules = {entry["module"] for entry in listed}
    assert names <= {mutant.name for module in modules for mutant in mutants_of(package / module)}
