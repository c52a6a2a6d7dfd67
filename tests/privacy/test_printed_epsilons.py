"""Every place that prints an epsilon is known, and says the same as the account or certificate behind it."""

import ast
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import turnout
from turnout import Averaging, Clamp, Memoized, SelfTuningController, TrackingClamp, paper_population, simulate
from turnout.cli import app
from turnout.plan import Wish, plan
from turnout.privacy.accounting import provided, shown
from turnout.privacy.accounts import PublicAccount, account_of
from turnout.privacy.certificates import certificate
from turnout.privacy.observer import FIXED_NUMBER, Observer
from turnout.report import run_page
from turnout.sweep import Asks, SweepRun, measure

SOURCE = Path(turnout.__file__).parent
MECHANISMS = [Clamp(0.5), TrackingClamp(0.5), Memoized(4.0, 10.0)]

PLACES = {
    # The source of truth, and what puts it into one line.
    "privacy/accounting.py": "Account",
    "privacy/certificates.py": "Certificate",
    "privacy/accounts.py": "the certificate, and an account after it",
    # What is asked for, allowed or claimed: a setting, which promises nothing by itself.
    "algorithm/channel.py": "a setting",
    "algorithm/mechanism.py": "a setting",
    "algorithm/mechanisms/learned_memoized.py": "a setting",
    "algorithm/mechanisms/memoized.py": "a setting",
    "cli/audit.py": "what a test would notice",
    "cli/join.py": "what the owner allows",
    "plan/frontiers.py": "what is asked for",
    "plan/planning.py": "the least account that a wish needs, against the observer that the message names",
    "plan/wish.py": "a wish, against its observer",
    "audit/claims.py": "a claim under test",
    "report/frontier_report.py": "captions, with the observer and the aggregator that must be trusted",
    "privacy/filter.py": "a limit, against whom",
    "privacy/floors.py": "what no mechanism can have",
    "client/ledger.py": "what the owner allows",
    # A certificate that is refused, with what is allowed.
    "flower/client_mod.py": "a certificate, against whom",
    "service/agent/agreement.py": "a certificate, against whom",
}


def test_every_place_that_puts_a_number_behind_epsilon_is_known():
    found = set()
    for path in SOURCE.rglob("*.py"):
        for text in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.JoinedStr)):
            for before, after in zip(text.values, text.values[1:], strict=False):
                words = before.value if isinstance(before, ast.Constant) else ""
                if isinstance(after, ast.FormattedValue) and words.rstrip(" =").endswith(("epsilon", "at most")):
                    found |= {path.relative_to(SOURCE).as_posix()} if "epsilon" in ast.unparse(text) else set()
    assert found == set(PLACES)


@pytest.fixture(scope="module")
def problem():
    return paper_population(0, 40).problem(20)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_a_run_says_its_certificate_wherever_it_is_shown(mechanism, problem, tmp_path):
    run = simulate(problem, mechanism, SelfTuningController(), 20, engine="numpy")
    run.save(tmp_path / "run.npz")
    promise = str(certificate(mechanism))
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "run.npz"), "--json"]).stdout
    assert json.loads(shown)["privacy"] == promise
    for page in (run._repr_html_(), run_page([run], ["run"]).html()):
        assert promise.partition("'")[0] in page  # the rest may be escaped
    table = " ".join(CliRunner().invoke(app, ["show", str(tmp_path / "run.npz")]).stdout.split())
    assert promise in table


POSSIBLE = [
    (mechanism, observer)
    for mechanism in MECHANISMS
    for observer in ("every-report", "sum")
    if not (mechanism.needs_public_average and observer == "sum")  # refused: see test_observer.py
]


@pytest.mark.parametrize(("mechanism", "observer"), POSSIBLE, ids=str)
def test_a_row_of_a_sweep_has_all_terms(mechanism, observer):
    settings = {"rounds": 20, "capacity": 20, "population": {"kind": "paper", "clients": 40}, "seed": 0}
    settings |= {"controller": {"kind": "self-tuning"}, "mechanism": mechanism.settings(), "observer": observer}
    by = "bit" if observer == "every-report" else "probability"
    row = measure((SweepRun("one", settings | {"averaging": {"by": by}}, {}), Asks(delta=1e-6))).row
    who = Observer(observer, None if observer == "every-report" else 38, averaging=Averaging(by=by))
    account = account_of(mechanism, 20, 1e-6, who)
    assert row["error"] is None
    assert row["total_epsilon_over_rounds"] == account.epsilon
    assert row["total_delta"] == account.delta
    assert row["total_against"] == row["certified_against"] == account.against
    assert row["total_assumptions"] == row["certified_assumptions"] == ("; ".join(account.assumptions) or None)


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=str)
def test_the_page_the_status_the_log_and_flower_have_one_sentence(mechanism):
    """They print `PublicAccount.sentence`: tests/service/test_metrics.py and tests/flower follow it there."""
    said, account = PublicAccount(mechanism, 1e-6).sentence(50), account_of(mechanism, 50, 1e-6)
    promise = certificate(mechanism)
    assert f"against {account.against}{provided(account.assumptions)}" in said
    if promise.per == "report":
        assert said == f"epsilon {shown(promise.epsilon)} per report; {account.assuming(FIXED_NUMBER)!r}"
    else:
        assert said == str(promise)
        assert "per lifetime" in said


def test_a_plan_prints_its_account(problem):
    found = plan(Wish(problem, 50, budget=4.0))
    assert repr(found.account) in repr(found)
    assert account_of(found.mechanism, 50, 1e-6).epsilon == found.account.epsilon
    for offer in found.others:
        assert offer.account is None or repr(offer.account) in repr(offer)
