"""Books that were restored without their witness, and another side that makes use of it: no second value, no bit."""

from dataclasses import replace

import numpy as np
import pytest

from service.hidden.scene import RUN, Memory, Pair, a_round, open_device, usual, went_on
from turnout.algorithm import IntegralController
from turnout.prio import MODULUS, Report, added, split
from turnout.problem import Problem, paper_population
from turnout.service.hidden import Helper, Leader, PeerProblem, Record, RoundWitness, settled
from turnout.service.hidden.messages import Chosen, Close, Closed, Commit, DeviceReport, Opening, Records, read
from turnout.service.hidden.records import RESTORED, commitment_of
from turnout.service.hidden.witness import KEPT

WEIGHTS = (1, 2, 3, 1)


@pytest.fixture
def pair(tmp_path):
    draws = (lambda round, sigma: 5, lambda round, sigma: 17)
    return Pair(tmp_path, WEIGHTS, draws, least=2, capacity=3)


def copy_of(pair, side):
    return pair.books[side]._db.serialize()


def restore(pair, side, copy):
    """The books of a side are as they were; its witness is not."""
    pair.books[side]._db.deserialize(copy)
    kind = (Leader, Helper)[side]
    made = kind(pair.rules, pair.books[side], pair.sides[side].witness, pair.draws[side])
    setattr(pair, kind.role, made)
    return made


def told(pair, steps):
    """So many questions and answers."""
    for _ in range(steps):
        pair.leader.take(pair.helper.answer(pair.leader.request()))


def lying_leader(pair, copy):
    """A leader that has its old books, and no witness."""
    pair.books[0]._db.deserialize(copy)
    witness = RoundWitness(pair.folder / "liar", new=True, disk=Memory())
    pair.leader = Leader(pair.rules, pair.books[0], witness, lambda round, sigma: 5)
    pair.leader.take(pair.helper.answer(pair.leader.request()))
    return pair.leader


@pytest.mark.parametrize("until", ["begun", "share", "commitment"])
def test_a_restored_helper_signs_no_other_value(pair, until):
    begun, copy = copy_of(pair, 0), copy_of(pair, 1)
    pair.bits([1, 1, 1, 0])
    pair.leader.close()
    told(pair, 1)
    answer = pair.helper.answer(pair.leader.request())
    copy = copy_of(pair, 1) if until == "share" else copy
    pair.leader.take(answer)
    answer = pair.helper.answer(pair.leader.request())
    copy = copy_of(pair, 1) if until == "commitment" else copy
    pair.leader.take(answer)
    first = settled(pair.leader, pair.helper)
    (old,) = pair.books[0].closed(0)
    helper = restore(pair, 1, copy)
    liar = lying_leader(pair, begun)
    lied = Opening(added(old.openings[0].share, -4000), "x")
    tag = liar._peer.tag
    helper.answer(Commit(tag, 0, commitment_of(RUN, 0, "leader", old.set, lied)).body())
    record, _ = liar._computed(old.set, (lied, old.openings[1]), "")
    with pytest.raises(PeerProblem, match="must be the one we had"):
        helper.answer(Records(tag, (Closed(record.body, old.set, (lied, old.openings[1])),)).body())
    assert helper.round == 0
    assert helper._standing().void == RESTORED
    helper.answer(Records(tag, (old,)).body())
    assert helper.record == first


def test_a_share_that_was_opened_is_opened_for_no_second_commitment(pair):
    pair.bits([1, 1, 1, 0])
    pair.leader.close()
    told(pair, 1)
    chosen = pair.helper.answer(pair.leader.request())
    copy = copy_of(pair, 1)
    pair.leader.take(chosen)
    pair.leader.take(pair.helper.answer(pair.leader.request()))  # the leader has opened; its record is lost on the way
    record = pair.leader.record
    helper = restore(pair, 1, copy)
    pair.leader = Leader(pair.rules, pair.books[0], pair.leader.witness, None)
    told(pair, 1)
    other = Commit(pair.leader._peer.tag, 0, "00" * 32)
    assert b'"standing"' in helper.answer(other.body())
    assert helper.books.share(0).seen == ""
    assert settled(pair.leader, helper) == record == helper.record


@pytest.mark.parametrize("side", [0, 1])
def test_a_side_that_lost_many_rounds_takes_those_that_it_had(pair, side):
    copy = copy_of(pair, side)
    for round in range(3):
        pair.bits([1, 1, 1, round % 2])
        assert pair.close().why == ""
    records = pair.books[1 - side].closed(0)
    restore(pair, side, copy)
    pair.leader._begin()
    settled(pair.leader, pair.helper)
    assert pair.books[side].closed(0) == records
    pair.bits([1, 1, 1, 1])
    assert pair.close().opened is not None


def test_a_witness_has_the_hashes_of_so_many_rounds(tmp_path):
    witness = RoundWitness(tmp_path / "witness", new=True, disk=Memory())
    for round in range(KEPT + 2):
        witness.close(round, str(round))
    assert [witness.record(round) for round in (-1, 1, 2, KEPT + 1, KEPT + 2)] == ["", "", "2", str(KEPT + 1), ""]
    witness.note(KEPT + 2, made="made")
    witness.note(KEPT + 2, made="other", taken="taken")
    witness.note(3, roll="late")
    again = RoundWitness(tmp_path / "witness")
    assert (again.done.roll, again.done.made, again.done.taken) == ("", "made", "taken")
    witness.close(KEPT + 9, "far")
    assert witness.done.records == ("far",)


class FailsOnce(Memory):
    """A disk of a witness that is full for a moment."""

    left = 1

    def put(self, path, data):
        self.left -= 1
        if self.left == 0:
            raise OSError(28, "no space")
        super().put(path, data)


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("at", range(1, 5))
def test_nothing_is_sent_before_the_witness_knows(pair, side, at):
    disk = FailsOnce()
    disk.left, pair.sides[side].witness._disk = at, disk
    pair.bits([1] * 4)
    for round in range(2):
        for _ in range(2):
            try:
                pair.leader.close() if pair.leader.round == round else None
                settled(pair.leader, pair.helper)
            except OSError:
                continue
        assert [one.record.round for one in pair.sides] == [round] * 2
        assert pair.sides[side].witness.record(round) == pair.leader.record.hash
        assert pair.leader.record.opened is not None
        pair.bits([1] * 4)


def test_both_restored_in_mid_round_void_it_as_restored_and_devices_go_on(tmp_path):
    problem = Problem(paper_population(seed=0).problem(600).costs[np.arange(4)], 2)
    pair = Pair(tmp_path, [1] * 4, least=2, capacity=2)
    devices = [open_device(tmp_path / str(slot), problem, pair.rules, slot, 3) for slot in range(4)]
    for slot, device in enumerate(devices):
        for side, body in zip(pair.sides, device.report(), strict=True):
            side.report([(slot, body)])
    pair.leader.close()
    told(pair, 2)
    copies = [copy_of(pair, side) for side in (0, 1)]
    have = settled(pair.leader, pair.helper)
    went_on(pair, 0, devices[0])
    for side in (0, 1):
        restore(pair, side, copies[side])
    pair.leader.void()
    record = settled(pair.leader, pair.helper)
    assert (have.opened is not None, record.round, record.why) == (True, 0, RESTORED)
    for device in devices[1:]:
        device.take(pair.leader.records(-1), pair.helper.records(-1), (True, True))
    pair.close()  # too few have reported
    mine = devices[0].record
    both = [side.records(mine.round, mine.hash) for side in pair.sides]
    devices[0].take(*both, (False, False))
    assert devices[0].record == pair.leader.record
    for device in devices[1:]:
        device.take(*[side.records(0) for side in pair.sides], (False, False))
    a_round(pair, devices)
    assert pair.leader.record.count == 4
    for device in devices:
        device.close()


def test_a_helper_gives_restored_as_the_reason_whatever_the_leader_says(pair):
    copies = [copy_of(pair, side) for side in (0, 1)]
    pair.bits([1] * 4)
    pair.close()
    helper, liar = restore(pair, 1, copies[1]), lying_leader(pair, copies[0])
    liar._peer = replace(liar._peer, void="")
    liar.void()
    helper.answer(liar.request())
    assert helper.record.why == RESTORED


# Two query points for one report.


def asked_to_close(pair):
    pair.leader.close()
    told(pair, 1)
    return pair.leader.request()


def test_a_restored_leader_sends_no_second_verifiers(pair):
    begun = copy_of(pair, 0)
    pair.books[0].enrol([(4, 1, 0)])
    pair.bits([1] * 4)
    made = split(1, pair.rules.context(0, 1))
    body = DeviceReport(RUN, 0, made.nonce, made.leader).body()
    assert pair.leader.report([(4, body)]) == [""]
    first = read(asked_to_close(pair), Close)
    assert 4 in first.slots
    leader = restore(pair, 0, begun)
    leader.enrol([(4, 2, 0)])  # the same report, in another context
    assert leader.report([(4, body)]) == [""]
    assert b'"void"' in asked_to_close(pair)
    assert settled(leader, pair.helper).why == RESTORED


def test_a_leader_that_only_stopped_sends_the_same_verifiers(pair):
    pair.bits([1] * 4)
    first = read(asked_to_close(pair), Close)
    pair.leader = Leader(pair.rules, pair.books[0], pair.leader.witness, lambda round, sigma: 5)
    assert pair.leader.report([(0, pair.report(0, 1)[0])]) == ["another"]
    again = read(asked_to_close(pair), Close)
    assert replace(again, tag=first.tag) == first
    assert settled(pair.leader, pair.helper).opened == 7 + 22


def test_once_verifiers_are_sent_reports_and_members_stay(pair):
    pair.bits([1, 1, 1, None])
    own = [pair.report(3, 1), pair.report(3, 0)]
    asked_to_close(pair)
    assert pair.leader.report([(3, own[0][0])]) == ["closed"]
    for change in (lambda: pair.leader.enrol([(4, 1, 0)]), lambda: pair.leader.leave(2, 0)):
        with pytest.raises(ValueError, match="must be 1 or later"):
            change()
    with pytest.raises(ValueError, match="a member must be as slot 3 was given"):
        pair.leader.enrol([(3, 2, 1)])
    assert settled(pair.leader, pair.helper).count == 3


def test_a_restored_leader_adds_up_no_other_report_than_the_helper(tmp_path):
    """One device lies, both sides are honest: what acts must stay below the hard limit."""
    rules = usual(4.0, controller=IntegralController(0.2, 20.0))
    pair = Pair(tmp_path, [1] * 6, rules=rules, capacity=3, least=2)
    pair.bits([1] * 5 + [None])
    begun = copy_of(pair, 0)
    pair.bits([None] * 5 + [1])
    pair.helper.answer(asked_to_close(pair))  # the helper has chosen; its answer is lost
    leader = restore(pair, 0, begun)
    assert leader.report([(5, pair.report(5, 0)[0])]) == [""]
    record = pair.close()
    assert (record.why, record.opened, record.go) == (RESTORED, None, False)
    pair.bits([1] * 6)
    assert (pair.close().opened, pair.leader.record.go) == (6, False)


def test_a_roll_that_changed_after_the_choice_costs_one_round(pair):
    pair.bits([1, 1, 1, None])
    answer = read(pair.helper.answer(asked_to_close(pair)), Chosen)
    pair.books[0]._db.execute("UPDATE members SET gone = 0 WHERE slot = 3")
    pair.leader.take(answer.body())
    assert pair.books[0].share(0) is None
    assert settled(pair.leader, pair.helper).why == "lost"
    pair.helper.leave(3, 1)
    pair.bits([1, 1, 1, None])
    assert pair.close().opened == 6 + 5 + 17


def test_another_report_with_the_same_nonce_comes_too_late(pair):
    """The shares of one report are added up on both sides, or nothing is."""
    pair.bits([1, 1, 1, None])
    made, other = split(1, pair.rules.context(0, 1)), split(0, pair.rules.context(0, 1))
    moved = Report(made.nonce, (1).to_bytes(8, "little") + other.leader[8:], made.helper)
    assert int.from_bytes(moved.leader[:8], "little") < MODULUS
    bodies = pair.report(3, 1, made=made)
    assert [side.report([(3, body)]) for side, body in zip(pair.sides, bodies, strict=True)] == [[""], [""]]
    pair.leader.close()
    told(pair, 1)
    close = pair.leader.request()
    copy = copy_of(pair, 0)
    pair.helper.answer(close)
    leader = restore(pair, 0, copy)
    assert leader.report([(3, pair.report(3, 0, made=moved)[0])]) == ["another"]
    assert pair.close().opened == 7 + 22


# Members that one side has, and the other has not.


def test_a_late_enrolment_on_one_side_is_mended(tmp_path):
    pair = Pair(tmp_path, (1, 1, 1), least=2, capacity=3)
    pair.helper.enrol([(3, 1, 1)])
    pair.bits([1, 1, 1])
    assert pair.close().opened == 3
    pair.bits([1, 1, 1])
    assert pair.close().why == "lost"
    pair.helper.leave(3, 2)
    pair.bits([1, 1, 1])
    assert pair.close().opened == 3
    pair.helper.enrol([(3, 1, 3)])
    pair.bits([1, 1, 1])
    assert pair.close().why == "lost"
    for side in pair.sides:
        side.enrol([(3, 2, 4)])
    pair.bits([1, 1, 1, 1])
    record = pair.close()
    assert (record.opened, record.count) == (5, 4)
    for side in pair.sides:
        with pytest.raises(ValueError, match="a member must be as slot 3 was given"):
            side.enrol([(3, 1, 5)])
        side.leave(3, 5)
        assert [side.is_counted(slot, 4) for slot in range(5)] == [True] * 4 + [False]
    pair.bits([1, 1, 1])
    assert pair.close().opened == 3


def test_a_member_of_one_side_alone_that_left_hinders_nobody(tmp_path):
    pair = Pair(tmp_path, (1, 1, 1), least=2, capacity=3)
    pair.helper.enrol([(20, 1, 1)])
    pair.helper.leave(20, 2)
    reasons = []
    for _ in range(4):
        pair.bits([1, 1, 1])
        reasons.append(pair.close().why)
    assert reasons == ["", "lost", "", ""]
    assert [Record.read(body).count for body in pair.helper.records(1)] == [3, 3]
