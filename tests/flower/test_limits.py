"""What a client allows: how it is given, what is refused in which words, and what happens when it is spent."""

import logging
import re
import tomllib
from pathlib import Path

import pytest
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from flower.apps import NODES, add_one, column, make_app, run
from turnout.algorithm import Clamp, Memoized
from turnout.client import ledger
from turnout.errors import TurnoutError
from turnout.flower import InProcessGrid, Limit, SelfSelection, self_selection_mod
from turnout.flower.client_mod import USUAL_LIMIT
from turnout.privacy import account_of, shown

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
PAGE = " ".join((ROOT / "docs" / "flower.md").read_text().split())


def with_limits(**settings):
    return InProcessGrid(make_app(), NODES, node_configs=[settings] * NODES)


class TestSettings:
    def test_those_of_another_kind_are_refused_at_once(self):
        with pytest.raises(ValueError, match=r"limit must be a turnout\.flower\.Limit, got tuple: write limit=Limit"):
            self_selection_mod(1.0, limit=(10, 1.0))
        with pytest.raises(ValueError, match="eligible must be a function of the Device, got True"):
            self_selection_mod(1.0, eligible=True)
        with pytest.raises(ValueError, match="mechanism must be a turnout Mechanism, got 'clamp'"):
            self_selection_mod(1.0, mechanism="clamp")

    def test_the_limit_is_at_hand(self):
        assert Limit is ledger.Limit  # type: ignore[attr-defined]


class TestOneRelease:
    MECHANISM = Memoized(epsilon=6.0, price=5.0)

    def test_its_epsilon_is_called_a_lifetimes_and_the_message_says_how_to_allow_it(self):
        with pytest.raises(TurnoutError, match=r"\(refused: Memoized.* has epsilon 6 per lifetime") as refusal:
            run(mechanism=self.MECHANISM)
        assert "which is all that it ever gives away, since it releases once" in str(refusal.value)
        assert "(in a study, limit=Limit(1000, 1.0, epsilon_per_release=6.0))" in str(refusal.value)
        key, value = re.search(r"(turnout-limit-epsilon-[a-z-]+)=(\S+) ", str(refusal.value)).groups()
        result = run(grid=with_limits(**{key: float(value)}), rounds=2, mechanism=self.MECHANISM)
        assert column(result, "refused") == [0, 0]
        assert f"`{key}={value}`" in PAGE

    def test_it_spends_one_report_however_many_follow(self):
        app = make_app(limit=Limit(1, 6.0))
        assert column(run(app, rounds=4, mechanism=self.MECHANISM), "stopped") == [0] * 4

    def test_a_real_client_needs_no_report_for_it(self, tmp_path):
        settings = {"turnout-cost": 2.0, "turnout-limit-reports": 0, "turnout-limit-epsilon-per-release": 6.0}
        homes = [{"turnout-state": str(tmp_path / str(node))} | settings for node in range(4)]
        for home in homes:
            Path(home["turnout-state"]).mkdir()
        grid = InProcessGrid(make_app(cost=None, durable=True), 4, node_configs=homes)
        result = run(grid=grid, rounds=3, capacity=2, mechanism=self.MECHANISM)
        assert column(result, "refused") == column(result, "stopped") == [0, 0, 0]

    def test_the_value_in_the_message_is_exact(self):
        with pytest.raises(TurnoutError, match=r"epsilon-per-report=1\.23456749 in node-config"):
            run(mechanism=Clamp(1.23456749, 0.3))  # six digits would be less


class TestTheEndOfTheBudgets:
    def test_is_told_when_it_begins_and_when_nobody_is_left(self, told):
        settings = [{"turnout-limit-reports": 2 if node < 20 else 3} for node in range(NODES)]
        result = run(grid=InProcessGrid(make_app(), NODES, node_configs=settings), rounds=6)
        assert column(result, "stopped") == [0, 0, 20, 50, 50, 50]
        warnings = [record.getMessage() for record in told.records if record.levelno == logging.WARNING]
        first, last = (text for text in warnings if "have stopped" in text)
        assert "20 of 50 nodes have stopped: their budgets of reports are spent, and they do not come again" in first
        assert "50 of 50 nodes have stopped: their budgets of reports are spent. Nobody is left" in last
        assert "train for fewer rounds than their limit (turnout-limit-reports)" in last
        assert re.search(r"configure_train: 0 of 50 nodes .* 0 abstained, 50 stopped, 0 not heard", told.text)

    @pytest.mark.parametrize("phases", [1, 2])
    def test_reports_after_it_are_not_counted(self, phases):
        result = run(make_app(limit=Limit(3, 1.0)), rounds=5, phases=phases)
        assert column(result, "epsilon-total-reports") == [1, 2, 3, 3, 3]
        total = column(result, "epsilon-total-against-server")
        assert total[1] < total[2] == total[4] <= 3.0

    def test_as_long_as_one_reports_every_round_counts(self):
        settings = [{"turnout-limit-reports": 2 if node else 9} for node in range(NODES)]
        result = run(grid=InProcessGrid(make_app(), NODES, node_configs=settings), rounds=4)
        assert column(result, "epsilon-total-reports") == [1, 2, 3, 4]

    def test_silence_counts_as_a_report(self):
        lost = InProcessGrid(make_app(), NODES, interfere=lambda node, message: "reply-lost")
        assert column(run(grid=lost, rounds=2), "epsilon-total-reports") == [1, 2]


def test_what_the_readme_starts_a_supernode_with_is_enough(tmp_path):
    (words,) = re.findall(r"`--node-config '(.*)'`", README)
    settings = tomllib.loads(words.replace(" ", "\n"))
    homes = [settings | {"turnout-state": str(tmp_path / str(node))} for node in range(4)]
    for home in homes:
        Path(home["turnout-state"]).mkdir()
    [(on_server, on_client)] = re.findall(r"^(strategy = SelfSelection.*)\n(@app\.train.*)$", README, re.MULTILINE)
    app = ClientApp()
    names = (SelfSelection, FedAvg, self_selection_mod, add_one)
    space = {"app": app, **{thing.__name__: thing for thing in names}}
    exec(f"{on_server}\n{on_client}\ndef train(message, context):\n    return add_one(message, context)", space)
    assert column(run(grid=InProcessGrid(app, 4, node_configs=homes), rounds=2, capacity=2), "refused") == [0, 0]
    nowhere = InProcessGrid(app, 4, node_configs=[{"turnout-cost": 3.0}] * 4)
    with pytest.raises(TurnoutError, match="no state directory"):
        run(grid=nowhere, rounds=1, capacity=2)
    assert "turnout-state" in settings


def test_the_page_has_the_total_behind_the_usual_limit():
    """For the default box of the page's example, 6 of 20, and for the worst one, around a half."""
    assert Limit(1000, 1.0) == USUAL_LIMIT
    totals = [shown(account_of(Clamp(1.0, center), USUAL_LIMIT.reports, 1e-6).epsilon) for center in (0.3, 0.5)]
    assert "a *total* epsilon of {} at delta 1e-6 for 6 of 20, and up to {}".format(*totals) in PAGE
