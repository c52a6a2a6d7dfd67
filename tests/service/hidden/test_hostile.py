"""Devices and aggregators that do not follow the protocol: what each gets."""

import json
from dataclasses import replace

import numpy as np
import pytest

from service.hidden.scene import RUN, Pair, a_round, open_device, usual, went_on
from turnout.algorithm import Classical, IntegralController, Prior, SumNoise
from turnout.prio import MODULUS, Report, added, split
from turnout.problem import Problem, paper_population
from turnout.service import ProtocolProblem, Rules, Safety
from turnout.service.hidden import (
    Books,
    Helper,
    HiddenRules,
    Leader,
    PeerProblem,
    Record,
    RoundWitness,
    aggregator,
    settled,
)
from turnout.service.hidden.messages import (
    Again,
    Chosen,
    Close,
    Closed,
    Commit,
    DeviceReport,
    Fetch,
    Hello,
    Opened,
    Opening,
    Records,
    Standing,
    Void,
    read,
)
from turnout.service.hidden.records import pack_set

WEIGHTS = (1, 2, 3, 1)


@pytest.fixture
def pair(tmp_path):
    return Pair(tmp_path, WEIGHTS, least=2, capacity=3)


def counted(pair):
    return [bool(pair.leader.is_counted(slot, pair.leader.round - 1)) for slot in range(len(WEIGHTS))]


# Devices.


def no_bit(rules, value):
    """A report of another number than 0 or 1: of the shares of a 1, the leader's is moved."""
    made = split(1, rules.context(0, 1))
    share = (int.from_bytes(made.leader[:8], "little") + value - 1) % MODULUS
    return Report(made.nonce, share.to_bytes(8, "little") + made.leader[8:], made.helper)


@pytest.mark.parametrize("value", [2, -1, 1000])
def test_a_number_that_is_no_bit_is_not_counted(pair, value):
    pair.bits([None, 1, 1, 1])
    for side, body in zip(pair.sides, pair.report(0, 0, made=no_bit(pair.rules, value)), strict=True):
        assert side.report([(0, body)]) == [""]
    assert pair.close().opened == 6
    assert counted(pair) == [False, True, True, True]


@pytest.mark.parametrize("wrong", ["weight", "round", "sigma", "run"])
def test_a_report_for_something_else_is_not_counted(pair, wrong):
    rules = pair.rules
    context = {
        "weight": lambda: rules.context(0, 3),
        "round": lambda: rules.context(1, 1),
        "sigma": lambda: replace(rules, noise=SumNoise(9.0, aggregators=2)).context(0, 1),
        "run": lambda: replace(rules, run="other").context(0, 1),
    }[wrong]()
    pair.bits([None, 1, 1, 0])
    for side, body in zip(pair.sides, pair.report(0, 1, made=split(1, context)), strict=True):
        side.report([(0, body)])
    assert pair.close().opened == 5
    assert counted(pair) == [False, True, True, True]


def test_two_reports_the_first_stays_and_where_the_sides_differ_none_counts(pair):
    pair.bits([1, 1, 1, None])
    first, second = pair.report(3, 1), pair.report(3, 0)
    assert pair.leader.report([(3, first[0]), (3, second[0]), (3, first[0])]) == ["", "another", ""]
    assert pair.helper.report([(3, second[1])]) == [""]
    assert pair.helper.report([(3, first[1])]) == ["another"]
    assert pair.close().opened == 6
    assert counted(pair) == [True, True, True, False]


def test_other_nonces_are_not_counted(pair):
    pair.bits([1, 1, 1, None])
    made = split(1, pair.rules.context(0, 1))
    bodies = [
        DeviceReport(RUN, 0, nonce, share).body()
        for nonce, share in ((made.nonce, made.leader), (bytes(16), made.helper))
    ]
    assert [side.report([(3, body)]) for side, body in zip(pair.sides, bodies, strict=True)] == [[""], [""]]
    assert pair.close().count == 3


def test_what_is_no_report_is_refused(pair):
    body = pair.report(0, 1)[0]
    assert pair.leader.report([(9, body), (-1, body)]) == ["unknown", "unknown"]
    assert pair.leader.report([(0, b""), (0, body + b" "), (0, b"[]"), (0, b"{}" * 9)]) == ["malformed"] * 4
    assert pair.leader.report([(0, body.replace(b'"round":0', b'"round":5'))]) == ["early"]
    assert pair.leader.report([(0, body.replace(RUN.encode(), b"others"))]) == ["unknown"]
    long = DeviceReport(RUN, 0, bytes(16), bytes(2000)).body()
    assert pair.leader.report([(0, long)]) == ["malformed"]
    short = DeviceReport(RUN, 0, b"short", b"share").body()
    pair.bits([None, 1, 1, 1])
    assert [side.report([(0, short)]) for side in pair.sides] == [[""], [""]]  # stored, and never counted
    assert pair.close().count == 3
    assert pair.leader.report([(0, body)]) == ["closed"]


# An aggregator that lies to devices.


@pytest.fixture
def scene(tmp_path):
    problem = Problem(paper_population(seed=0).problem(600).costs[np.arange(4)], 2)
    pair = Pair(tmp_path, [1] * 4, least=2, capacity=2)
    devices = [open_device(tmp_path / str(slot), problem, pair.rules, slot, 3) for slot in range(4)]
    yield pair, devices, problem
    for device in devices:
        device.close()


def test_two_records_or_one_from_one_side_alone_move_no_device(scene):
    pair, devices, _ = scene
    a_round(pair, devices)
    device, before = devices[0], devices[0].record
    pair.bits([1] * 4)
    pair.close()
    (true,) = pair.leader.records(0)
    false = replace(Record.read(true), signal=99.0).body
    for leader, helper in (([false], [true]), ([true], [false]), ([true], []), ([], []), ([true, false], [true])):
        with pytest.raises(PeerProblem, match="both aggregators must give the same records"):
            device.take(leader, helper, (True, True))
        assert device.record == before
        assert not device.acts


def test_records_that_do_not_follow_are_refused_though_both_give_them(scene):
    pair, devices, _ = scene
    device = devices[0]
    for round in range(3):
        a_round(pair, [])
        assert pair.leader.round == round + 1
    first, second, third = map(Record.read, pair.leader.records(-1))
    stories = {
        "does not follow": ([second, third], [replace(first, before="x")], [replace(first, round=1)]),
        "another run": ([replace(first, run="other")], [replace(first, rules="00")]),
    }
    for told, many in stories.items():
        for records in many:
            bodies = [record.body for record in records]
            with pytest.raises(PeerProblem, match=told):
                device.take(bodies, bodies, (True, True))
    device.take([first.body, second.body], [first.body, second.body], (True, True))
    with pytest.raises(PeerProblem, match="does not follow"):
        device.take([first.body], [first.body], (True, True))
    with pytest.raises(ProtocolProblem, match="canonical form"):
        device.take([third.body + b" "], [third.body + b" "], (True, True))


def test_a_restored_chain_is_taken_up_where_both_say_so_and_never_an_older_round(scene):
    pair, devices, _ = scene
    a_round(pair, devices)
    device = devices[0]
    sent = device.report()
    gap = replace(device.record, before="lost", opened=None, go=False, why="restored")
    with pytest.raises(PeerProblem, match="is the last one already"):
        device.take([gap.body], [gap.body], (True, True))
    assert device.report() == sent
    later = replace(gap, round=1)
    device.take([later.body], [later.body], (True, True))
    assert device.record == later
    assert not device.acts


def test_a_device_acts_only_where_both_say_that_it_is_in_the_set(scene):
    pair, devices, _ = scene
    for _ in range(6):
        for slot, device in enumerate(devices):
            for side, body in zip(pair.sides, device.report(), strict=True):
                side.report([(slot, body)])
        pair.close()
        after = devices[0].record.round
        bodies = pair.leader.records(after)
        assert not devices[0].take(bodies, bodies, (True, False))
        assert not devices[1].take(bodies, bodies, (False, True))
        assert [went_on(pair, slot, devices[slot]) for slot in (2, 3)] == [d._bit() for d in devices[2:]]
    assert devices[0].status()["average"] == devices[1].status()["average"] == 5 / 16


def test_a_device_reports_once_for_a_round_whatever_happens(scene, tmp_path):
    pair, devices, problem = scene
    a_round(pair, devices)
    sent = devices[0].report()
    file = tmp_path / "0" / "reports.jsonl"
    copy = file.read_bytes()
    devices[0].close()
    devices[0] = open_device(tmp_path / "0", problem, pair.rules, 0, 3)
    assert devices[0].report() == sent
    devices[0].close()
    file.write_bytes(copy[: copy.rindex(b"\n", 0, -1) + 1])  # as it was before the report
    devices[0] = open_device(tmp_path / "0", problem, pair.rules, 0, 3)
    assert devices[0].report() is None
    pair.bits([1] * 4)
    pair.close()
    assert not went_on(pair, 0, devices[0])
    assert devices[0].report() is not None


# Aggregators that lie to each other.


def hello(leader):
    return read(leader.request(), Hello)


def spoken(pair, *bits):
    """All up to the helper's choice: (the question to close, the answer)."""
    pair.bits(bits or [1] * 4)
    pair.leader.close()
    pair.leader.take(pair.helper.answer(pair.leader.request()))
    close = pair.leader.request()
    return read(close, Close), read(pair.helper.answer(close), Chosen)


def test_other_rules_or_another_key_are_refused(pair, tmp_path):
    body = hello(pair.leader)
    with pytest.raises(PeerProblem, match="rules must be the same"):
        pair.helper.answer(replace(body, rules="00").body())
    with pytest.raises(PeerProblem, match="verify key"):
        pair.helper.answer(replace(body, key=bytes(32)).body())
    standing = read(pair.helper.answer(body.body()), Standing)
    with pytest.raises(PeerProblem, match="verify key"):
        pair.leader.take(replace(standing, key=bytes(32)).body())
    with pytest.raises(ValueError, match="keys of these books"):
        Leader(replace(pair.rules, keys=("", "")), pair.books[0], pair.leader.witness, None)
    with pytest.raises(ValueError, match="those that the books began with"):
        Leader(replace(pair.rules, capacity=9), pair.books[0], pair.leader.witness, None)


def test_the_set_is_chosen_once(pair):
    close, chosen = spoken(pair)
    fewer = replace(close, slots=close.slots[:2], nonces=close.nonces[:2], verifiers=close.verifiers[:2])
    assert read(pair.helper.answer(fewer.body()), Chosen) == chosen
    none = replace(close, slots=(), nonces=(), verifiers=())
    assert read(pair.helper.answer(none.body()), Chosen) == chosen


def test_a_leader_that_names_fewer_than_the_minimum_opens_nothing(pair):
    pair.bits([1] * 4)
    pair.leader.close()
    pair.leader.take(pair.helper.answer(pair.leader.request()))
    close = read(pair.leader.request(), Close)
    one = replace(close, slots=close.slots[:1], nonces=close.nonces[:1], verifiers=close.verifiers[:1])
    records = read(pair.helper.answer(one.body()), Records)
    assert Record.read(records.closed[0].record).why == "few"
    assert pair.books[1].share(0) is None


def test_a_leader_with_another_roll_gets_a_void_round(pair):
    pair.books[0].enrol([(4, 1, 0)])
    pair.bits([1] * 4)
    assert pair.close().why == "lost"
    pair.books[1].enrol([(4, 1, 0)])
    pair.bits([1] * 4)
    assert pair.close().opened == 7


def test_a_second_opening_is_not_to_be_had(pair):
    _, chosen = spoken(pair)
    pair.leader.take(chosen.body())
    commit = read(pair.leader.request(), Commit)
    opened = pair.helper.answer(commit.body())
    assert pair.helper.answer(commit.body()) == opened
    with pytest.raises(PeerProblem, match="commit once"):
        pair.helper.answer(replace(commit, commitment="00" * 32).body())
    pair.leader.take(opened)
    settled(pair.leader, pair.helper)
    after = read(pair.helper.answer(commit.body()), Records)
    assert Record.read(after.closed[0].record).opened == 7
    assert pair.books[1].share(0) is None


def test_a_leader_that_opens_another_share_than_it_committed_to_is_refused(pair):
    _, chosen = spoken(pair)
    pair.leader.take(chosen.body())
    pair.leader.take(pair.helper.answer(pair.leader.request()))
    records = read(pair.leader.request(), Records)
    (closed,) = records.closed
    mine, theirs = closed.openings
    true = Record.read(closed.record)
    other = replace(mine, share=added(mine.share, 5))
    lies = {
        "what it committed to": (replace(true, opened=true.opened + 5), (other, theirs)),
        "must be ours|never made": (replace(true, opened=true.opened + 5), (mine, replace(theirs, share=1))),
        "follow from the sum": (replace(true, signal=9.0), (mine, theirs)),
        "what it committed to|a sum and a set": (replace(true, opened=None, why="lost"), (mine, theirs)),
    }
    for told, (record, openings) in lies.items():
        with pytest.raises(PeerProblem, match=told):
            pair.helper.answer(replace(records, closed=(Closed(record.body, closed.set, openings),)).body())
        assert pair.helper.round == 0
    pair.helper.answer(records.body())
    assert pair.helper.record == pair.leader.record


@pytest.mark.parametrize("commitment", ["", "00", "A" * 64, "0" * 63 + " ", None])
def test_no_share_is_opened_without_a_commitment(pair, commitment):
    _, chosen = spoken(pair)
    body = chosen.body().replace(f'"{chosen.commitment}"'.encode(), json.dumps(commitment).encode())
    with pytest.raises(ProtocolProblem, match="chosen"):
        pair.leader.take(body)
    pair.leader.take(chosen.body())
    commit = read(pair.leader.request(), Commit)
    body = commit.body().replace(f'"{commit.commitment}"'.encode(), json.dumps(commitment).encode())
    with pytest.raises(ProtocolProblem, match="commit"):
        pair.helper.answer(body)
    assert pair.books[1].share(0).seen == ""


def test_a_record_without_a_commitment_is_refused(pair):
    _, chosen = spoken(pair)
    theirs = pair.books[1].share(0).opening
    made = (Opening(added(5, -theirs.share), "00"), theirs)
    record, _ = pair.leader._computed(chosen.set, made, "")
    with pytest.raises(PeerProblem, match="what it committed to"):
        pair.helper.answer(Records(chosen.tag, (Closed(record.body, chosen.set, made),)).body())
    assert pair.helper.round == 0


@pytest.mark.parametrize("lie", [-(10**17), 100])
@pytest.mark.parametrize("liar", ["leader", "helper"])
def test_a_sum_that_cannot_be_is_refused(tmp_path, monkeypatch, lie, liar):
    """With bounded noise an honest side signs no sum below -2B, or above the weight of all plus 2B."""
    options = {"noise": SumNoise(1.0, aggregators=2, bound=5), "rounds": 9, "delta": 0.5, "heaviest": 1}
    pair = Pair(tmp_path, [1] * 6, rules=usual(hard_limit=12), capacity=3, **options)
    side = {"leader": pair.leader, "helper": pair.helper}[liar]
    make = side._make_share

    def moved(*given):
        with monkeypatch.context() as patch:
            patch.setattr(aggregator, "added", lambda *shares: added(*shares, lie))
            return make(*given)

    monkeypatch.setattr(side, "_make_share", moved)
    monkeypatch.setattr(side, "_check_total", lambda *given: None)
    pair.bits([1] * 6)
    with pytest.raises(PeerProblem, match="a sum must be from -10 to 16"):
        pair.close()
    honest = pair.helper if liar == "leader" else pair.leader
    assert honest.record.round == -1


def test_a_leader_makes_the_helper_write_no_void_record(pair):
    """The helper writes a record without a sum first: the leader's own is refused, whatever its reason."""
    _, chosen = spoken(pair)
    members, nobody = pair.books[0].members(0), np.zeros(4, bool)
    empty = pack_set(members, nobody, nobody, [])
    for why, packed in (("few", empty), ("lost", b""), ("restored", b""), ("because I say so", b"")):
        record, _ = pair.leader._computed(packed, (), why)
        with pytest.raises(PeerProblem, match="not void for us"):
            pair.helper.answer(Records(chosen.tag, (Closed(record.body, packed),)).body())
    assert pair.helper.round == 0
    assert pair.books[1].share(0) is not None


def test_a_helper_that_names_another_reason_is_refused(pair):
    _, chosen = spoken(pair)
    record, _ = pair.helper._computed(b"", (), "because I say so")
    with pytest.raises(PeerProblem, match="not void for us"):
        pair.leader.take(Records(chosen.tag, (Closed(record.body),)).body())
    one = (Opening(1, "00"),)
    with pytest.raises(PeerProblem, match="two openings"):
        pair.helper._computed(chosen.set, one, "")
    with pytest.raises(PeerProblem, match="two openings"):
        pair.helper._computed(chosen.set, (Opening(MODULUS, "00"), *one), "")


def test_numbers_and_nesting_beyond_measure_are_no_error(pair):
    pair.helper.answer(pair.leader.request())
    tag = pair.helper._tag
    for far in (10**30, -(10**30)):
        assert pair.leader.records(far) == ([] if far > 0 else pair.leader.records(-2))
        assert not pair.leader.is_counted(0, far)
        assert read(pair.helper.answer(Fetch(tag, far).body()), Standing, Records)
    with pytest.raises(ProtocolProblem, match="canonical form"):
        pair.helper.answer(Records(tag, (Closed(b"[" * 200_000),)).body())
    first = pair.helper.record
    with pytest.raises(ProtocolProblem, match="canonical form"):
        Record.read(first.body.replace(f'"{first.rules}"'.encode(), b"[1]"))


def test_a_leader_cannot_invent_a_sum_that_the_helper_took_no_part_in(pair):
    pair.leader.take(pair.helper.answer(pair.leader.request()))
    everyone = np.ones(4, bool)
    made = (Opening(5, "00"), Opening(2, "00"))
    closed = Closed(pair.leader.record.body, pack_set(pair.books[0].members(0), everyone, everyone, []), made)
    record, _ = pair.leader._computed(closed.set, made, "")
    records = Records(pair.leader._peer.tag, (replace(closed, record=record.body),))
    with pytest.raises(PeerProblem, match="never made"):
        pair.helper.answer(records.body())


@pytest.mark.parametrize("lie", ["nobody", "no member", "not reported", "too few", "other reports", "short"])
def test_a_helper_that_names_another_set_gets_a_void_round(pair, lie):
    _, chosen = spoken(pair, 1, 1, 1, None)
    heard, members = np.array([True, True, True, False]), pair.books[0].members(0)
    nonces = [nonce for nonce, _ in pair.books[1].reports(0).values()]
    sets = {
        "nobody": pack_set(members, ~heard & heard, ~heard & heard, []),
        "no member": b"\xe8\xe8" + chosen.set[2:],
        "not reported": pack_set(members, np.ones(4, bool), np.ones(4, bool), nonces),
        "too few": pack_set(members, np.arange(4) == 0, np.arange(4) == 0, nonces[:1]),
        "other reports": pack_set(members, heard, heard, [*nonces[:2], bytes(16)]),
        "short": b"\xe0",
    }
    assert pack_set(members, heard, heard, nonces) == chosen.set
    pair.leader.take(replace(chosen, set=sets[lie]).body())
    assert pair.books[0].share(0) is None
    assert settled(pair.leader, pair.helper).why == "lost"
    assert pair.leader.record.body == pair.helper.record.body


def test_a_helper_that_opens_another_share_than_it_committed_to_is_refused(pair):
    _, chosen = spoken(pair)
    pair.leader.take(chosen.body())
    opened = read(pair.helper.answer(pair.leader.request()), Opened)
    for lie in (replace(opened.opening, share=3), replace(opened.opening, salt="00")):
        with pytest.raises(PeerProblem, match="what it committed to"):
            pair.leader.take(replace(opened, opening=lie).body())
    assert pair.leader.record.round == -1


def test_a_round_cannot_be_void_once_it_is_opened(pair):
    pair.bits([1] * 4)
    record = pair.close()
    tag = pair.leader._peer.tag
    answer = read(pair.helper.answer(Void(tag, 0, "lost").body()), Records)
    assert answer.closed[0].record == record.body
    with pytest.raises(PeerProblem, match="must be void for"):
        pair.helper.answer(Void(tag, 1, "few").body())


def test_messages_of_another_conversation_are_not_heard(pair):
    _, chosen = spoken(pair)
    pair.leader.take(chosen.body())
    commit = read(pair.leader.request(), Commit)
    assert read(pair.helper.answer(replace(commit, tag=("a", "b")).body()), Again)
    again = Helper(pair.rules, pair.books[1], pair.helper.witness, None)
    assert read(again.answer(commit.body()), Again)
    pair.leader.take(replace(chosen, tag=("a", "b")).body())
    assert settled(pair.leader, pair.helper).opened == 7


def test_rules_that_hide_nothing_are_refused():
    with pytest.raises(ValueError, match=r"safety.missing must be absent"):
        HiddenRules("run", replace(usual(), safety=replace(usual().safety, missing="last")), 5)
    with pytest.raises(ValueError, match="noise must be of two aggregators"):
        HiddenRules("run", usual(), 5, SumNoise(2.0))
    with pytest.raises(ValueError, match="least must be"):
        HiddenRules("run", usual(), 5, least=0)
    noise = SumNoise(3.0, aggregators=2, bound=8)
    with pytest.raises(ValueError, match="rounds and delta must be given"):
        HiddenRules("run", usual(), 5, noise)
    with pytest.raises(ValueError, match=r"noise.bound must be 20 or more over 1000 rounds"):
        HiddenRules("run", usual(), 5, noise, rounds=1000, delta=1e-6)
    rules = HiddenRules("run", usual(), 5, replace(noise, bound=20), rounds=1000, delta=1e-6)
    with pytest.raises(ValueError, match="weight must be at most 1"):
        rules.context(0, 2)


def test_rules_with_whole_numbers_are_the_same_rules(tmp_path):
    def made(kind):
        safety = Safety("absent", hard_limit=kind(70), quorum=kind(1))
        few = Rules(Classical(), IntegralController(kind(1), kind(2)), safety, prior=Prior(kind(1)))
        return HiddenRules("boilers", few, kind(40), SumNoise(kind(3), aggregators=2, bound=20), rounds=9, delta=1e-6)

    whole, real = made(int), made(float)
    assert whole.digest == real.digest == HiddenRules.from_settings(whole.settings()).digest
    assert whole.context(0, 1) == real.context(0, 1)
    books = Books(tmp_path / "leader.sqlite")
    rules = replace(whole, keys=(books.key, "0" * 64))
    for _ in range(2):
        Leader(rules, books, RoundWitness(tmp_path / "witness", new=True), None)
        books.close()
        books = Books(tmp_path / "leader.sqlite")
