"""`turnout serve` before it serves: the first thing that an operator types."""

import subprocess
import sys


def test_the_one_choice_without_a_default_is_asked_for_in_the_operators_words(tmp_path):
    command = [sys.executable, "-m", "turnout", "serve", "--capacity", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=60)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "--missing (safety.missing in a file) must be absent or last, got nothing" in done.stderr
    assert "a silent device then counts as not taking part" in done.stderr
