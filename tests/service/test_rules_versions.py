"""Rules of a living run: a new version holds from a stated round on, for all coordinators and all devices alike."""

from __future__ import annotations

import contextlib
import json
import time

import numpy as np
import pytest

from service.agents import agent_with
from service.bare_device import Device, at_once
from service.running import begun, codes_for, running, send, usual_rules
from turnout.algorithm import Clamp, Public
from turnout.client import Limit
from turnout.privacy import NOT_ADAPTIVE, Kind, PublicAccount, total_of
from turnout.service import changed_settings
from turnout.service.agent.agreement import Declined
from turnout.service.coordinator.exporting import export
from turnout.service.coordinator.overview import Overview
from turnout.service.rules import RulesVersion, RulesVersions, Safety, Timing
from turnout.service.store.backup import open_store
from turnout.service.store.store import StoreProblem

LONG = Timing(round=0.0, deadline=30.0, hold=20.0)


def change(store, since: int = 0, **given) -> RulesVersion:
    """What `turnout operate rules` does."""
    newest = store.rules()[-1]
    return store.change_rules(changed_settings(newest.settings, given), newest.number, "test", since)


def test_a_change_holds_from_the_next_round_on_and_never_in_the_open_one(tmp_path):
    store = begun(tmp_path / "run.db", usual_rules(LONG, wait_for=2))
    codes = codes_for(store, 2)
    with running(store) as coordinator, contextlib.closing(open_store(str(tmp_path / "run.db"))) as operator:
        one, two = (Device(coordinator.url, code) for code in codes)

        def both(round):
            return at_once(lambda: one.report(round, True), lambda: two.report(round, True))

        both(0)
        change(operator, safety={"hard_limit": 2.0}, timing={"lease": 300.0})
        made = change(operator, safety={"hard_limit": 2.0, "quorum": 0.25})
        assert (made.number, made.since) == (3, 2), "round 1 is open: it keeps its rules"
        time.sleep(0.7)  # it has looked at the store since
        assert coordinator.coordinator.sync.open.version.number == 1
        (_, first), (_, second) = both(1)
        assert first["counted"]
        assert second["counted"], "the limit of 2 holds from round 2 on"
        assert first["lease"] > 290.0, "it lasts into round 2"
        assert first["next"]["rules"] == made.name != ""
        assert coordinator.coordinator.sync.open.version.number == 3
        assert sum(answer["counted"] for _, answer in both(2)) == 2
        change(operator, safety={"hard_limit": 2.0}, timing={"round": 0.5})
        operator.change("test", capacity=1.0)
        change(operator, safety={"hard_limit": 1.0})
        both(3)
        assert sum(answer["counted"] for _, answer in both(4)) == 1
    log = [line.detail for line in open_store(str(tmp_path / "run.db")).changes() if line.what == "rules"]
    assert log[0] == "version 2 from round 2 on: safety.hard_limit none -> 2, timing.lease 30 -> 300"
    assert len(log) == 4


def test_a_device_that_knows_of_no_versions_goes_on_unless_the_mechanism_changed(tmp_path):
    """Stated and safe: its report would be another mechanism's than the account says, so it is told to update."""
    store = begun(tmp_path / "run.db", usual_rules(LONG, wait_for=1))
    codes = codes_for(store, 2)
    with running(store) as coordinator:
        old = Device(coordinator.url, codes[0])
        old.report(0, True)
        coordinator.call(coordinator.coordinator.sync.call, lambda: change(store, timing={"hold": 10.0}))
        old.report(1, True)
        assert old.report(2, False)[1]["outcome"] == "accepted", "only a time changed"
        named = coordinator.call(
            coordinator.coordinator.sync.call, lambda: change(store, mechanism={"epsilon": 0.5})
        ).name
        old.report(3, False)
        status, said = old.report(4, True)
        assert (status, said["error"]) == (409, "rules")
        assert "update turnout" in said["message"]
        assert said["next"]["rules"] == named
        status, told = send(coordinator.url, "GET", "/v1/rules", None, old.token)
        assert (status, told["mechanism"]["epsilon"], told["offer"]["rules"]) == (200, 0.5, named)
        assert told["offer"]["round"] == 4
        new = Device(coordinator.url, codes[1])
        assert new.welcome["mechanism"]["epsilon"] == 0.5
        assert new.welcome["offer"]["rules"] == named
        aware = {"run": "test", "round": 4, "participates": True, "rules": named}
        (status, answer), (_, other) = at_once(
            lambda: send(coordinator.url, "POST", "/v1/report", aware, old.token), lambda: new.report(4, True)
        )
        assert (status, answer["outcome"], other["outcome"]) == (200, "accepted", "accepted")
        assert send(coordinator.url, "POST", "/v1/report", aware | {"rules": 7}, old.token)[0] == 400
    assert coordinator.coordinator.events.faults["conflicts (rules)"] == 1


def test_a_first_round_that_waits_for_too_many_waits_for_fewer_at_once(tmp_path):
    store = begun(tmp_path / "run.db", usual_rules(LONG, wait_for=3))
    (code,) = codes_for(store, 1)
    with running(store) as coordinator:
        sync, one = coordinator.coordinator.sync, Device(coordinator.url, code)
        assert sync.waits
        coordinator.call(sync.call, lambda: change(store, wait_for=1))
        status, answer = one.report(0, True)  # held until the round has closed
        assert (status, answer["outcome"], answer["counted"]) == (200, "accepted", True)
        assert sync.open.number == 1


def test_agents_agree_or_leave_and_no_code_is_used(tmp_path):
    store = begun(tmp_path / "run.db", usual_rules(Timing(0.0, 0.3, hold=0.3), wait_for=2))
    codes = codes_for(store, 2)
    limits = [Limit(100, 1.0), Limit(100, 2.0)]
    with running(store) as coordinator:
        agents = [agent_with(coordinator.url, tmp_path / f"{i}", 3.0, code=codes[i], limit=limits[i]) for i in range(2)]
        at_once(*(lambda agent=agent: [agent.step() for _ in range(3)] for agent in agents))
        coordinator.call(coordinator.coordinator.sync.call, lambda: change(store, mechanism={"epsilon": 2.0}))

        def strict():
            with pytest.raises(Declined, match="has left the run"):
                agents[0].run(rounds=10)

        at_once(strict, lambda: agents[1].run(rounds=10))
        assert agents[1].status()["rules"].startswith("2-")
    kept = open_store(str(tmp_path / "run.db"))
    assert sorted(device.left is None for device in kept.devices()) == [False, True]
    lines = [json.loads(line) for line in (tmp_path / "1" / "ledger.jsonl").read_text().splitlines()]
    since = kept.rules()[-1].since
    spent = {line["round"]: line["epsilon_per_report"] for line in lines if line["entry"] == "reserved"}
    assert spent == {round: 1.0 if round < since else 2.0 for round in spent}
    assert {1.0, 2.0} == set(spent.values())


def test_the_account_is_the_composition_over_the_versions(tmp_path):
    store = begun(tmp_path / "run.db", usual_rules(LONG, wait_for=1))
    [code] = codes_for(store, 1)
    with running(store) as coordinator:
        sync, device = coordinator.coordinator.sync, Device(coordinator.url, code)
        overview = Overview(coordinator.coordinator)
        first = overview.snapshot()
        assert first["rules"] == {"version": 1, "since": 0, "next": None}
        coordinator.call(sync.call, lambda: change(store, since=3, mechanism={"epsilon": 0.5}))
        for round in range(3):
            device.report(round, True)
        made = overview.snapshot()
        assert made["rules"] == {"version": 2, "since": 3, "next": None}
        account = made["account"]
        expected = total_of({kind(1.0): 3, kind(0.5): 1}, 1e-6)
        assert account["reports"] == 4
        assert expected.epsilon <= account["total_epsilon"] < expected.epsilon * 1.001
        assert NOT_ADAPTIVE in account["assumptions"]
        assert account["epsilon_per_report"] == 0.5
        assert "under earlier rules" in account["text"]
        coordinator.call(sync.call, lambda: change(store, since=9, mechanism={"epsilon": 1.0}))
        coordinator.call(sync.look)
        assert overview.snapshot()["rules"]["next"] == {"version": 3, "since": 9}
    alike = PublicAccount(Clamp(1.0), 1e-6, earlier=[(Clamp(1.0), 3)]).total(5)
    assert alike.epsilon == PublicAccount(Clamp(1.0), 1e-6).total(5).epsilon


def kind(epsilon):
    low, high = Clamp(epsilon).box(Public())
    return Kind(epsilon, float(low), float(high))


def test_the_export_names_every_version(tmp_path):
    store = begun(tmp_path / "run.db", usual_rules(LONG, wait_for=1))
    [code] = codes_for(store, 1)
    with running(store) as coordinator:
        device = Device(coordinator.url, code)
        coordinator.call(coordinator.coordinator.sync.call, lambda: change(store, since=2, timing={"hold": 9.0}))
        coordinator.call(coordinator.coordinator.sync.call, lambda: change(store, since=3, mechanism={"epsilon": 0.5}))
        for round in range(3):
            device.report(round, True)
        named = {"run": "test", "round": 3, "participates": True, "rules": "3-00000000"}
        assert send(coordinator.url, "POST", "/v1/report", named, device.token)[0] == 200
    found = export(open_store(str(tmp_path / "run.db")))
    told = found.provenance
    assert [(one["number"], one["since"]) for one in told["rules"]] == [(1, 0), (2, 2), (3, 3)]
    assert [(part["rounds"], part["mechanism"]["epsilon"]) for part in told["earlier"]] == [(2, 1.0), (1, 1.0)]
    assert told["mechanism"]["epsilon"] == 0.5
    found.save(tmp_path / "run.npz")
    assert "clamp, epsilon 1 per report" in found._repr_html_()


class TestVersions:
    def test_the_newest_that_has_begun_holds(self):
        versions = RulesVersions([RulesVersion(n, since, {}, 0.0, "") for n, since in enumerate((0, 5, 5, 8), 1)])
        assert [versions.at(round).number for round in (0, 4, 5, 7, 8, 99)] == [1, 1, 3, 3, 4, 4]
        assert [version.number for version in versions.in_force(7)] == [1, 3], "the second never held"

    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ({"start": {"rounds": 5}}, r"start.rounds must be 10.*, got 5.*: every device's history has begun with it"),
            ({"averaging": {"remember": 30}}, "averaging.remember .* the histories on both sides have moved by it"),
            ({"controller": {"kind": "integral", "gain": 0.1, "initial": 1.0}}, "controller.* cannot be carried over"),
            ({"safety": {"missing": "last"}}, "safety.missing must be 'absent', .* built on what silence"),
            ({"delta": 1e-9}, "delta must be .* every total that was shown was at this delta"),
            ({"observer": "sum", "averaging": {"by": "probability"}}, "it is a promise|have moved by it"),
            ({"timing": {"round": -1}}, "round must be 0 seconds or more"),
            ({"timing": {"rond": 1}}, "did you mean 'round'"),
            ({"mechanism": 3}, "mechanism must be a table"),
        ],
    )
    def test_what_cannot_change_is_refused_with_the_reason(self, given, reason):
        with pytest.raises(ValueError, match=reason):
            changed_settings(usual_rules().settings(), given)

    def test_times_that_followed_the_round_follow_it_again(self):
        has = usual_rules(Timing(round=10.0)).settings()
        assert changed_settings(has, {"timing": {"round": 30.0}})["timing"] == {
            "round": 30.0, "deadline": 45.0, "lease": 45.0, "hold": 30.0,
        }  # fmt: skip
        chosen = usual_rules(Timing(round=10.0, deadline=40.0, lease=7.0)).settings()
        assert changed_settings(chosen, {"timing": {"round": 30.0}})["timing"]["deadline"] == 40.0
        assert changed_settings(chosen, {"timing": {"round": 30.0}})["timing"]["lease"] == 7.0

    def test_a_limit_is_taken_away(self):
        has = usual_rules(safety=Safety("absent", hard_limit=7.0)).settings()
        assert "hard_limit" not in changed_settings(has, {"safety": {"hard_limit": "none"}})["safety"]


def test_two_operators_at_once(tmp_path):
    store = begun(tmp_path / "run.db")
    settings = changed_settings(store.rules()[-1].settings, {"timing": {"hold": 9.0}})
    other = changed_settings(store.rules()[-1].settings, {"timing": {"hold": 8.0}})
    assert store.change_rules(settings, 1, "me").number == 2
    assert store.change_rules(settings, 1, "me").number == 2, "the same again is no change"
    with pytest.raises(StoreProblem, match="changed meanwhile"):
        store.change_rules(other, 1, "me")
    assert np.array_equal([version.number for version in store.rules()], [1, 2])
    assert store.rules(after=1) == [store.rules()[1]]
