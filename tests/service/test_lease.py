"""Work under a lease: it ends on time, whatever hangs, and is ended first by whoever finds its marker."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from client.faults import FailingDisk
from turnout.errors import FileProblem
from turnout.service import boot_clock
from turnout.service.agent.work import (
    CalledWork,
    CommandFailed,
    CommandWork,
    Lease,
    Participation,
    left_over,
)

PYTHON = sys.executable


def until(true, seconds=10.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def granted(seconds, round=3):
    return Participation("run", round, boot_clock() + seconds, seconds)


class Noted:
    """Work that notes what is asked of it."""

    def __init__(self):
        self.events, self.failing = [], 0

    def start(self, participation):
        self.events.append(("start", participation.round))

    def stop(self, participation):
        self.events.append(("stop", participation.round))
        if self.failing:
            self.failing -= 1
            raise OSError("the relay does not answer")


@pytest.fixture
def marker(tmp_path):
    return tmp_path / "working.json"


class TestLease:
    def test_it_ends_by_itself_on_time(self, marker):
        work = Noted()
        with Lease(work, marker) as lease:
            begun = time.monotonic()
            lease.grant(granted(0.3))
            until(lambda: work.events == [("start", 3)])
            assert json.loads(marker.read_text()) == {"run": "run", "round": 3}
            until(lambda: len(work.events) == 2)
            assert 0.29 < time.monotonic() - begun < 0.6
            until(lambda: not marker.exists())
        assert work.events == [("start", 3), ("stop", 3)]

    def test_it_is_renewed_without_an_end_and_ended_with_the_last_round(self, marker):
        work = Noted()
        with Lease(work, marker) as lease:
            for round in range(5):
                lease.grant(granted(0.5, round))
                time.sleep(0.1)
            assert lease.current.round == 4
            assert json.loads(marker.read_text())["round"] == 4
            lease.end()
            until(lambda: lease.current is None)
        assert work.events == [*(("start", round) for round in range(5)), ("stop", 4)]

    def test_what_is_over_already_starts_nothing(self, marker):
        work = Noted()
        with Lease(work, marker) as lease:
            lease.grant(granted(-1.0))
            lease.end()
        assert work.events == []

    def test_a_start_that_hangs_delays_no_end_and_is_ended_again(self, marker):
        events, hung, release = [], threading.Event(), threading.Event()

        def hang(participation):
            hung.set()
            release.wait(10)
            events.append("on")

        with Lease(CalledWork(hang, lambda: events.append("off")), marker, tick=0.02) as lease:
            lease.grant(granted(0.2))
            assert hung.wait(5)
            until(lambda: events == ["off"])  # on time
            assert marker.exists()  # it may still come on
            release.set()
            until(lambda: events == ["off", "on", "off"])
            until(lambda: not marker.exists())

    def test_a_start_that_hangs_beyond_closing_is_ended_all_the_same(self, marker):
        events, hung, release = [], threading.Event(), threading.Event()

        def hang(participation):
            hung.set()
            release.wait(10)
            events.append("on")

        with Lease(CalledWork(hang, lambda: events.append("off")), marker) as lease:
            lease.grant(granted(60))
            assert hung.wait(5)
        assert events == ["off"]
        assert marker.exists()
        release.set()
        until(lambda: events == ["off", "on", "off"])
        until(lambda: not marker.exists())

    def test_who_is_told_of_problems_may_fail(self, marker):
        def fail(*_):
            raise BrokenPipeError

        work = Noted()
        with Lease(CalledWork(fail, lambda: work.stop(granted(1))), marker, noted=fail) as lease:
            work.failing = 1
            lease.grant(granted(0.05))
            until(lambda: len(work.events) == 1)
            lease.end()
            until(lambda: len(work.events) == 2)

    def test_the_marker_of_a_killed_agent_ends_its_work_first(self, marker):
        marker.write_text('{"run": "run", "round": 7}')
        work = Noted()
        with Lease(work, marker) as lease:
            lease.grant(granted(5.0, 8))
            until(lambda: ("start", 8) in work.events)
        assert work.events[:2] == [("stop", 7), ("start", 8)]

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"run": 1}'])
    def test_a_marker_that_cannot_be_read_is_one_all_the_same(self, marker, content):
        marker.write_bytes(content)
        work = Noted()
        with Lease(work, marker):
            until(lambda: not marker.exists())
        assert work.events == [("stop", 0)]

    def test_an_end_that_fails_is_tried_again_and_marked_until_it_works(self, marker, monkeypatch):
        monkeypatch.setattr("turnout.service.agent.work.AGAIN", 0.05)
        work, problems = Noted(), []
        work.failing = 3
        with Lease(work, marker, noted=problems.append) as lease:
            lease.grant(granted(0.05))
            until(lambda: len(problems) == 1)
            assert marker.exists()
            until(lambda: not marker.exists())
        assert [event for event, _ in work.events] == ["start", *["stop"] * 4]
        assert "the relay does not answer" in problems[0]

    def test_an_end_that_fails_at_closing_is_left_to_the_next_start(self, marker):
        work = Noted()
        work.failing = 99
        with Lease(work, marker) as lease:
            lease.grant(granted(60))
            until(lambda: work.events)
        assert marker.exists()
        assert lease.current is None

    def test_a_start_that_fails_is_told_and_still_ended(self, marker):
        problems, ends = [], []

        def fail(participation):
            raise OSError("no such relay")

        with Lease(CalledWork(fail, lambda: ends.append(1)), marker, noted=problems.append) as lease:
            lease.grant(granted(60))
            until(lambda: problems)
        assert ends

    @pytest.mark.parametrize("step", [1, 2, 3])
    def test_no_work_without_a_marker(self, marker, step):
        work, problems = Noted(), []
        with Lease(work, marker, disk=FailingDisk(step), noted=problems.append) as lease:
            lease.grant(granted(60))
            until(lambda: problems)
            assert lease.current is None
        assert work.events == []

    def test_a_sleeping_machine_counts(self, marker):
        """The clock jumps ahead, as it does for a machine that slept; no timer has gone off."""
        work, now = Noted(), [100.0]
        with Lease(work, marker, clock=lambda: now[0], tick=0.02) as lease:
            lease.grant(Participation("run", 1, 100.0 + 3600.0, 3600.0))
            until(lambda: work.events == [("start", 1)])
            time.sleep(0.1)
            assert len(work.events) == 1
            now[0] += 3600.0
            until(lambda: len(work.events) == 2, seconds=1.0)

    def test_the_clock_is_one_that_nobody_can_set(self):
        assert abs(boot_clock() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1.0

    @pytest.mark.timeout(300, method="thread")  # the other method needs the alarm, which the test takes for itself
    def test_ending_is_safe_in_a_signal_handler(self, marker):
        work = Noted()
        with Lease(work, marker) as lease:
            before = signal.signal(signal.SIGALRM, lambda *_: lease.end())
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
                for round in range(200):
                    lease.grant(granted(60, round))
                    time.sleep(0.001)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
        assert work.events[-1][0] == "stop"


def script(path, text):
    path.write_text(f"#!{PYTHON}\n{text}")
    path.chmod(0o755)
    return str(path)


NOTE = "import os, sys, time, signal\nf = open({out!r}, 'a', buffering=1)\n"


class TestCommands:
    def test_a_process_goes_on_from_round_to_round_and_is_started_anew_once_it_has_ended(self, tmp_path):
        out = tmp_path / "out.txt"
        text = NOTE.format(out=str(out)) + "f.write(' '.join(os.environ[f'TURNOUT_{n}'] for n in "
        text += "('RUN', 'ROUND', 'LEASE_SECONDS')) + ' ' + sys.argv[1] + '\\n')\ntime.sleep(float(sys.argv[2]))\n"
        short = script(tmp_path / "work.py", text)
        work = CommandWork(f"{short} 'two words' 0.3", None, tmp_path)
        work.start(Participation("run", 1, 0.0, 5.0))
        until(lambda: out.exists() and out.read_text())
        work.start(Participation("run", 2, 0.0, 5.0))
        time.sleep(0.6)
        work.start(Participation("run", 3, 0.0, 5.0))
        until(lambda: len(out.read_text().splitlines()) == 2)
        work.stop(Participation("run", 3))
        assert out.read_text().splitlines() == ["run 1 5.000 two words", "run 3 5.000 two words"]

    def test_the_ending_command_comes_first_then_a_signal_then_the_end(self, tmp_path):
        out = tmp_path / "out.txt"
        deaf = "signal.signal(signal.SIGTERM, lambda *_: f.write('term\\n'))\nf.write('on\\n')\n"
        deaf += "while True: time.sleep(1)\n"
        on = script(tmp_path / "on.py", NOTE.format(out=str(out)) + deaf)
        off = script(
            tmp_path / "off.py", NOTE.format(out=str(out)) + "f.write('off ' + os.environ['TURNOUT_ROUND'] + '\\n')\n"
        )
        work = CommandWork(on, off, tmp_path, grace=1.0)
        work.start(Participation("run", 4, 0.0, 5.0))
        until(lambda: out.exists() and "on" in out.read_text())
        pid = left_over(tmp_path / "process.json")
        assert os.getpgid(pid) == pid != os.getpgid(0)
        begun = time.monotonic()
        work.stop(Participation("run", 4))
        assert 0.9 < time.monotonic() - begun < 4.0
        assert out.read_text().split("\n")[:3] == ["on", "off 4", "term"]
        assert left_over(tmp_path / "process.json") is None
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_children_of_the_work_are_ended_too(self, tmp_path):
        text = f"import subprocess, time\np = subprocess.Popen([{PYTHON!r}, '-c', 'import time; time.sleep(60)'])\n"
        text += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid))\ntime.sleep(60)\n"
        work = CommandWork(script(tmp_path / "on.py", text), None, tmp_path)
        work.start(Participation("run", 4, 0.0, 5.0))
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
        work.stop(Participation("run", 4))
        child = int((tmp_path / "pid").read_text())
        until(lambda: not _runs(child))

    def test_work_that_a_killed_agent_has_left_is_ended_and_no_other_process(self, tmp_path):
        left = CommandWork(f"{PYTHON} -c 'import time; time.sleep(60)'", None, tmp_path)
        left.start(Participation("run", 1, 0.0, 5.0))
        pid = left_over(tmp_path / "process.json")
        reaper = threading.Thread(target=left._process.wait)
        reaper.start()
        CommandWork(None, None, tmp_path).stop(Participation("run", 1))  # the next agent's
        reaper.join(5)
        assert not _runs(pid)
        bystander = subprocess.Popen([PYTHON, "-c", "import time; time.sleep(60)"], start_new_session=True)
        (tmp_path / "process.json").write_text(json.dumps({"pid": bystander.pid, "identity": "another boot 5"}))
        CommandWork(None, None, tmp_path).stop(Participation("run", 1))
        assert bystander.poll() is None
        bystander.kill()
        bystander.wait()

    def test_an_ending_command_that_fails_or_hangs_is_an_error_and_the_work_ends_all_the_same(self, tmp_path):
        for command, told in (("false", "status 1"), ("sleep 60", "more than 0.3 s")):
            work = CommandWork("sleep 60", command, tmp_path, grace=0.3)
            work.start(Participation("run", 1, 0.0, 5.0))
            pid = left_over(tmp_path / "process.json")
            with pytest.raises((CommandFailed, OSError), match=told):
                work.stop(Participation("run", 1))
            assert not _runs(pid)

    def test_what_is_no_command(self, tmp_path):
        with pytest.raises(ValueError, match="--on-stop must be a command line"):
            CommandWork(None, "echo 'a", tmp_path)
        with pytest.raises(ValueError, match="--on-participate must be"):
            CommandWork("  ", None, tmp_path)
        for command in ("/no/such/program", "no-such-program --at all"):
            with pytest.raises(FileProblem, match="no such program for --on-stop"):
                CommandWork(None, command, tmp_path)


def _runs(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
