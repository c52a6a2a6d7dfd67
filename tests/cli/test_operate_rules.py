"""`turnout operate init` and `rules`, as an operator and a configuration management meet them."""

import json
import re

import pytest
from typer.testing import CliRunner

from service.test_trimming import filled
from turnout.cli import app
from turnout.service.store import SqlStore, open_store


@pytest.fixture
def store(tmp_path):
    return str(tmp_path / "run.db")


def operate(*arguments):
    """What a command prints, and its notes; its error is raised."""
    done = CliRunner().invoke(app, ["operate", *map(str, arguments)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


USUAL = ("--run", "chargers", "--capacity", "5", "--missing", "absent", "--hard-limit", "8", "--round-seconds", "7")


class TestInit:
    def test_the_same_again_changes_nothing(self, store):
        said = operate("init", "--store", store, *USUAL)
        assert f"run chargers begins in {store}: start it with `turnout serve --store {store}`" in said
        before = contents(store)
        assert "is in" in operate("init", "--store", store, *USUAL)
        assert "no change" in operate("init", "--store", store, *USUAL)
        assert contents(store) == before

    def test_two_at_once_begin_it_once(self, store, monkeypatch):
        begin = SqlStore.begin

        def overtaken(self, *given):
            monkeypatch.setattr(SqlStore, "begin", begin)
            assert "run chargers begins in" in operate("init", "--store", store, *USUAL)
            begin(self, *given)

        monkeypatch.setattr(SqlStore, "begin", overtaken)
        assert "no change" in operate("init", "--store", store, *USUAL)

    def test_other_rules_are_refused_and_all_that_differs_is_named(self, store):
        operate("init", "--store", store, *USUAL)
        before = contents(store)
        with pytest.raises(ValueError, match=r"safety.missing, timing.round must be 'absent', 7.0.*operate rules"):
            operate("init", "--store", store, "--capacity", "5", "--missing", "last", "--round-seconds", "9")
        with pytest.raises(ValueError, match="run must be 'chargers'"):
            operate("init", "--store", store, "--run", "heaters", *USUAL[2:])
        assert contents(store) == before

    def test_a_capacity_that_was_changed_since_is_no_fault(self, store):
        operate("init", "--store", store, *USUAL)
        operate("capacity", 6, "--store", store)
        said = operate("init", "--store", store, *USUAL)
        assert "no change" in said
        assert f"note: its capacity is 6, not 5: `turnout operate capacity --store {store}` changes it" in said

    def test_rules_that_were_changed_since_are_the_ones_to_ask_for(self, store):
        operate("init", "--store", store, *USUAL)
        operate("rules", "--store", store, "--set", "timing.round=30")
        with pytest.raises(ValueError, match=r"timing.round must be 30.0, as the store's run has it, got 7.0"):
            operate("init", "--store", store, *USUAL)
        assert "no change" in operate("init", "--store", store, *USUAL[:8], "--round-seconds", "30")

    def test_a_round_that_is_longer_than_the_deadline_by_now_is_what_is_named(self, store):
        operate("init", "--store", store, *USUAL[:8], "--round-seconds", "900")
        operate("rules", "--store", store, "--set", "timing.round=300")
        with pytest.raises(ValueError, match=r"^timing.round must be 300.0, as the store's run has it, got 900.0"):
            operate("init", "--store", store, *USUAL[:8], "--round-seconds", "900")

    def test_what_the_run_does_not_have_is_said_in_words(self, store):
        operate("init", "--store", store, *USUAL)
        with pytest.raises(ValueError, match=r"safety.most_signal must be not set, as the store's run has it, got 9.0"):
            operate("init", "--store", store, *USUAL, "--set", "safety.most_signal=9")

    def test_it_needs_what_a_new_run_needs(self, store):
        with pytest.raises(ValueError, match="--capacity must be given for a new run"):
            operate("init", "--store", store, "--missing", "absent")
        with pytest.raises(ValueError, match="--missing"):
            operate("init", "--store", store, "--capacity", "5")


def contents(store):
    kept = open_store(store)
    try:
        return kept.run(), kept.position(), kept.control(), kept.rules(), kept.changes()
    finally:
        kept.close()


class TestRules:
    @pytest.fixture(autouse=True)
    def _begun(self, store):
        operate("init", "--store", store, *USUAL)

    def test_they_are_shown_and_changed(self, store):
        assert operate("rules", "--store", store).startswith("version 1 from round 0 on, in force")
        said = operate("rules", "--store", store, "--set", "timing.round=30", "--set", "safety.hard_limit=9")
        assert said.splitlines() == [
            "version 2 holds from round 1 on",
            "safety.hard_limit: 8.0 -> 9.0",
            "timing.deadline: 10.5 -> 45.0",
            "timing.lease: 10.5 -> 45.0",
            "timing.round: 7.0 -> 30.0",
        ]
        assert (
            operate("rules", "--store", store, "--set", "timing.round=30") == "no change: version 2 has these rules\n"
        )
        other = ("rules", "--store", store, "--set", "mechanism.epsilon=0.5", "--from-round", "40")
        asked = r"this changes the mechanism from .*: 0 devices will be asked to agree.* leaves for good.*with --yes"
        with pytest.raises(ValueError, match=asked):
            operate(*other)
        said = operate(*other, "--yes")
        assert "version 3 holds from round 40 on" in said
        assert "agrees to the mechanism within its owner's limits, or leaves" in said
        shown = operate("rules", "--store", store).splitlines()
        assert len(shown) == 3
        assert "to come" in shown[2]
        found = json.loads(operate("rules", "--store", store, "--json"))
        assert [(one["number"], one["since"], one["in_force"]) for one in found] == [
            (1, 0, True), (2, 1, False), (3, 40, False),
        ]  # fmt: skip
        assert found[2]["settings"]["mechanism"]["epsilon"] == 0.5
        assert [change["what"] for change in json.loads(operate("log", "--store", store, "--json"))] == ["rules"] * 2

    def test_how_many_the_first_round_waits_for_changes_until_it_closes(self, store):
        said = operate("rules", "--store", store, "--set", "wait_for=3")
        assert "wait_for: 1 -> 3\nwait_for holds at once: the first round is open\n" in said
        later = f"{store}.later"
        filled(later, rounds=1)[0].close()
        with pytest.raises(ValueError, match=r"wait_for must be \d, as the first round had it, got 9: it holds until"):
            operate("rules", "--store", later, "--set", "wait_for=9")

    def test_a_file_may_hold_them(self, store, tmp_path):
        (tmp_path / "new.toml").write_text("capacity = 99\n[mechanism]\nkind = 'clamp'\nepsilon = 0.25\n")
        done = json.loads(operate("rules", tmp_path / "new.toml", "--store", store, "--yes", "--json"))
        assert done == {"number": 2, "since": 1, "changed": True}
        assert open_store(store).rules()[-1].settings["mechanism"]["epsilon"] == 0.25
        assert open_store(store).control().capacity == 5.0

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ("capacity=3", "use `turnout operate capacity`"),
            ("safety.missing=last", "begin another run for it. What may change: the mechanism, safety.hard_limit"),
            ("start.average=0.1", "every device's history has begun with it"),
            ("safety.hard_limit=3", "at most the hard limit of 3 from round 1 on, got 5"),
            ("controller.initial=1", "it was the first signal, which moves since then"),
            ("safety.most_signal=-1", "most_signal must be above 0"),
            ("timing.rund=3", "did you mean 'round'"),
        ],
    )
    def test_what_cannot_be_is_refused_with_the_reason(self, store, change, reason):
        with pytest.raises(ValueError, match=re.escape(reason)):
            operate("rules", "--store", store, "--set", change)
        assert len(open_store(store).rules()) == 1


class TestTrim:
    @pytest.fixture(autouse=True)
    def _begun(self, store):
        operate("init", "--store", store, *USUAL)

    def test_a_young_run_has_nothing_to_trim(self, store):
        assert operate("trim", "--store", store, "--days", "90") == "nothing to trim: rounds from 0 on are stored\n"

    def test_old_rounds_are_summed_up(self, tmp_path, monkeypatch):
        monkeypatch.setattr("turnout.service.coordinator.exporting.KEPT_ROUNDS", 20)
        location = str(tmp_path / "old.db")
        filled(location, 60)[0].close()
        said = operate("trim", "--store", location, "--before", "1970-01-01T00:16:50")
        assert said.startswith("rounds 0 to 9 are summed up; in all until there 10 rounds, ")
        assert "rounds 10 to 39 are summed up; in all until there 40 rounds" in operate(
            "trim", "--store", location, "--days", "90"
        )
        assert operate("trim", "--store", location, "--days", "90").startswith("nothing to trim: rounds from 40 on")

    def test_what_a_wrong_clock_keeps_is_told(self, tmp_path):
        location = str(tmp_path / "old.db")
        filled(location, 1020, clock=lambda round: 4e9 if round > 5 else 1000.0)[0].close()
        said = operate("trim", "--store", location, "--days", "90")
        assert "note: the clock said 2096-10-02 07:06:40 when round 6 closed, which cannot be true: it stays" in said
        assert "rounds 0 to 5 are summed up" in said

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ((), "time must be one of --before and --days, got none"),
            (("--days", "1", "--before", "2026-01-01"), "got both"),
            (("--days", "0"), "--days must be above 0"),
            (("--before", "yesterday"), "--before must be a date or a time, got 'yesterday': write 2026-10-01"),
        ],
    )
    def test_a_time_is_needed(self, store, options, reason):
        with pytest.raises(ValueError, match=re.escape(reason)):
            operate("trim", "--store", store, *options)


class TestVersionsToCome:
    @pytest.fixture
    def begun(self, store):
        operate("init", "--store", store, *USUAL)
        return store

    def test_a_later_one_takes_their_place(self, begun):
        limited = ("rules", "--store", begun, "--set")
        operate(*limited, "safety.hard_limit=9", "--from-round", "1000000")
        assert "version 3 holds from round 3 on" in operate(*limited, "safety.hard_limit=7", "--from-round", "3")
        operate(*limited, "safety.hard_limit=6", "--from-round", "1000000")
        operate(*limited, "safety.hard_limit=9", "--from-round", "2")
        assert operate("capacity", 8, "--store", begun) == "capacity 8\n", "the limit of 6 never holds"

    def test_a_refused_run_leaves_no_store(self, tmp_path):
        with pytest.raises(ValueError, match="--hard-limit"):
            operate("init", "--store", tmp_path / "new.db", *USUAL[:6])
        assert not list(tmp_path.iterdir())

    def test_a_plan_s_first_signal_is_of_no_use_any_more(self, begun, tmp_path):
        (tmp_path / "plan.toml").write_text("[controller]\nkind = 'self-tuning'\ninitial = 0.3\n[timing]\nround = 20\n")
        assert "timing.round: 7.0 -> 20.0" in operate("rules", tmp_path / "plan.toml", "--store", begun)
