"""The example app: its task, its study, the documentation's numbers, and `flwr run`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from flower.simulation_link import SimulationLink
from turnout.flower import run_in_process

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "flower-digits"
PAGE = ROOT / "docs" / "learning.md"
FAMILIES = ("paper", "quadratic")
SMALL = {"clients": 20, "capacity": 4, "num-server-rounds": 3, "selection": "coin", "weights": "stored-updates"}
SMALL |= {"costs": "quadratic", "seed": 1, "local-steps": 10, "learning-rate": 0.1}


@pytest.fixture
def example(monkeypatch):
    """The example's folder on the path, as when its scripts run there."""
    monkeypatch.syspath_prepend(str(EXAMPLE))


@pytest.fixture
def task(example):
    from flower_digits import task

    return task


@pytest.fixture
def apps(example):
    from flower_digits import client_app, server_app

    return server_app, client_app


class TestTask:
    def test_every_image_has_one_owner_and_most_have_the_owners_digit(self, task):
        data = task.digits(3, 100)
        owned = np.concatenate(data.parts)
        assert sorted(owned) == list(range(1797 - task.TEST))
        assert min(map(len, data.parts)) >= 5
        own = [np.mean(data.part(client)[1] == client % 10) for client in range(100)]
        assert np.mean(own) > 0.75

    @pytest.mark.parametrize("family", ["paper", "quadratic"])
    def test_the_costly_group_has_the_dearest_costs(self, task, family):
        costs = task.population(family, 3, 100, 0.2)
        slope = costs.slope(np.full(100, 0.2))
        costly = np.isin(np.arange(100) % 10, task.COSTLY)
        assert costly.sum() == 30
        assert slope[costly].min() > slope[~costly].max()

    def test_training_goes_down_the_slope_of_the_loss(self, task):
        images, labels = task.digits(0, 20).part(2)
        model = task.first_model(0)
        after, loss = task.train(model, images, labels, steps=1, rate=1e-3)
        slopes = [(old - new) / 1e-3 for old, new in zip(model, after, strict=True)]
        for place, index in ((0, (27, 5)), (1, (7,)), (2, (5, 2)), (3, (2,))):
            moved = [array.copy() for array in model]
            moved[place][index] += 1e-5
            numeric = (task.train(moved, images, labels, steps=1, rate=0.0)[1] - loss) / 1e-5
            assert slopes[place][index] == pytest.approx(numeric, abs=1e-4)

    def test_an_unknown_selection_is_refused(self, apps):
        server, client = apps
        with pytest.raises(ValueError, match="selection must be random or classical or coin or clamp, got 'other'"):
            run_in_process(server.app, client.app, 20, run_config=SMALL | {"selection": "other"})


def study(*words):
    command = [sys.executable, str(EXAMPLE / "study.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.deployment
def test_the_study_runs_and_goes_on_where_it_was(tmp_path):
    done = study("--quick", "--jobs", "1", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"results.json", "report.html", "learning-costs.png", "learning-curves.png"}
    results = json.loads((tmp_path / "results.json").read_text())
    runs = results["runs"]
    assert len(runs) == 4 * 3 * 2
    # Turnout and costs do not depend on the weights, and without privacy they are nearest to the optimum.
    for family in ("paper", "quadratic"):
        cost = {}
        for selection in ("random", "classical", "coin", "clamp"):
            (cost[selection],) = {r["client_cost"] for r in runs if (r["costs"], r["selection"]) == (family, selection)}
        assert cost["classical"] < cost["random"]
    certified = {run["selection"] for run in runs if run["epsilon_total"] is not None}
    assert certified == {"clamp"}
    # One run is missing: it is made again, and no other.
    missing = next(run for run in runs if run["selection"] == "coin")
    results["runs"] = [run for run in runs if run is not missing]
    (tmp_path / "results.json").write_text(json.dumps(results))
    assert study("--quick", "--jobs", "1", "--output", str(tmp_path)).returncode == 0
    again = json.loads((tmp_path / "results.json").read_text())["runs"]
    assert again == runs
    other = study("--quick", "--jobs", "1", "--rounds", "30", "--output", str(tmp_path))
    assert other.returncode == 1
    assert "other settings: use --fresh, or another --output" in other.stderr


class TestDocumentation:
    @pytest.fixture
    def results(self):
        return json.loads((EXAMPLE / "results.json").read_text())

    @pytest.fixture
    def rows(self, example, results):
        import study_report

        rows = study_report.summary(results["runs"])
        return {(row["costs"], row["selection"], row["weights"]): row for row in rows}

    def test_the_tables_are_the_results(self, example, results):
        import study_report

        assert results["settings"]["clients"] == 100
        assert results["settings"]["rounds"] == 300
        assert len({run["seed"] for run in results["runs"]}) >= 5
        assert study_report.markdown(results["runs"], results["settings"]) in PAGE.read_text()

    def test_the_pictures_are_there(self):
        pictures = re.findall(r"\]\((images/[\w-]+\.png)\)", PAGE.read_text())
        assert len(pictures) == 2
        assert all((PAGE.parent / picture).stat().st_size > 10_000 for picture in pictures)

    @pytest.mark.parametrize(("family", "most"), [("paper", 0.30), ("quadratic", 0.55)])
    @pytest.mark.parametrize("weights", ["inverse-participation", "stored-updates"])
    def test_what_the_page_promises_of_the_coin_with_weights(self, rows, family, most, weights):
        row = rows[family, "coin", weights]
        assert row["gain"][0] > -0.5
        assert row["costly_gain"][0] > -2.0
        assert row["over_random"][0] <= most
        assert row["turnout"] == pytest.approx(20, abs=0.5)

    def test_the_numbers_in_the_text(self, rows):
        """Losses, costs and rounds in the prose are those of the table."""
        text = " ".join(PAGE.read_text().split())

        def lost(family, selection, weights):
            row = rows[family, selection, weights]
            return f"{-row['gain'][0]:.1f}", f"{-row['costly_gain'][0]:.1f}"

        def paid(selection):
            return [f"{100 * rows[family, selection, 'plain']['over_random'][0]:.0f} %" for family in FAMILIES]

        (first, second), (third, fourth) = (lost("paper", one, "plain") for one in ("classical", "coin"))
        assert f"it loses {first} points" in text
        assert f"and {second} on the digits of the costly group; with the paper's coin {third} and {fourth}." in text
        (first, second), (third, fourth) = (lost("quadratic", one, "plain") for one in ("classical", "coin"))
        assert f"it is {first} and {second}, and with the coin {third} and {fourth}." in text
        (first, second), (third, fourth) = (lost(family, "coin", "inverse-participation") for family in FAMILIES)
        assert f"is then {first} points below" in text
        assert f"group's {second} (quadratic costs: {third} and {fourth})" in text
        assert "pay {} of what they pay under random selection (quadratic: {})".format(*paid("coin")) in text
        assert "pay {} of what random selection makes them pay (quadratic costs: {})".format(*paid("classical")) in text
        assert "them to {} ({}), the certified Clamp to {} ({}).".format(*paid("coin"), *paid("clamp")) in text
        ten = [
            f"{rows['paper', one, two]['rounds']:.0f}" for one, two in (("coin", "stored-updates"), ("random", "plain"))
        ]
        assert "90 % in {} rounds, random selection in {}.".format(*ten) in text
        most = max(abs(row["turnout"] - 20) for row in rows.values())
        assert f"equal within {np.ceil(100 * most) / 100:.2f} of a client" in text
        best = [rows[family, "classical", "plain"]["over_optimum"][0] for family in FAMILIES]
        assert max(best) < 1.01  # "within a percent of the smallest possible"

    @pytest.mark.parametrize("family", ["paper", "quadratic"])
    def test_the_warning(self, rows, family):
        assert rows[family, "classical", "plain"]["costly_gain"][0] < -5.0
        assert rows[family, "coin", "plain"]["costly_gain"][0] < -2.0


@pytest.mark.deployment
def test_flwr_run_is_the_same_run(apps, tmp_path):
    server, client = apps
    history = run_in_process(server.app, client.app, 20, run_config=SMALL).state["history"]
    words = " ".join(f'{key}="{value}"' if isinstance(value, str) else f"{key}={value}" for key, value in SMALL.items())
    with SimulationLink(tmp_path, nodes=20) as link:
        log = link.run(EXAMPLE, words)
    assert log.count("of 20 nodes volunteered") == 3
    found = [float(number) for number in re.findall(r"MetricRecord: \{'accuracy': ([\d.]+),", log)]
    assert found == pytest.approx(history["accuracy"], abs=0.004)  # sums of floats in another order may turn one image
