"""Take docs/images/operator.png, the operator's page of a real run: 1,200 devices, a change of capacity, an outage.

python tools/operator_picture.py
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext, sync_playwright

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "operator.png"
DEVICES, ROUNDS, CHANGED, CUT = 1200, 420, 220, "0.95:250:40"
WIDTH, HEIGHT = 1320, 1640
QUIET = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


def main() -> None:
    """Serve, play the fleet, look at the page."""
    with tempfile.TemporaryDirectory() as folder:
        serving = start(folder, "serve --capacity 600 --hard-limit 660 --missing absent --run chargers --port 0",
                        f"--operator-port 0 --wait-for {DEVICES} --round-seconds 0.1 --deadline 5")  # fmt: skip
        try:
            assert serving.stdout is not None
            said = [serving.stdout.readline() for _ in range(3)]
            devices, page = (re.search(r"http://[\d.:]+", line)[0] for line in said[1:])  # type: ignore[index]
            (Path(folder) / "codes.txt").write_text(run(folder, f"operate codes {DEVICES}"))
            fleet = start(folder, f"fleet {devices} --codes codes.txt --rounds {ROUNDS} --cut {CUT}")
            password = (Path(folder) / "turnout.db.password").read_text().strip()
            take(page, password, lambda: run(folder, "operate capacity 560"))
            fleet.terminate()
            fleet.wait(30)
        finally:
            serving.terminate()
            serving.wait(30)


def take(page: str, password: str, change: Callable[[], object]) -> None:
    """The page as it is at the end; the capacity is changed on the way."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=QUIET)
        context = browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT}, http_credentials={"username": "operator", "password": password}
        )
        view = context.new_page()
        view.goto(page)
        wait_for(context, page, CHANGED)
        change()
        wait_for(context, page, ROUNDS - 8)
        view.wait_for_timeout(500)
        view.screenshot(path=PICTURE)
        browser.close()


def wait_for(context: BrowserContext, page: str, round: int) -> None:
    """Until the run has come so far."""
    while context.request.get(f"{page}/api/snapshot").json()["round"] < round:
        time.sleep(0.05)


def start(folder: str, *words: str) -> subprocess.Popen[str]:
    """A command of turnout that goes on."""
    command = [sys.executable, "-m", "turnout", *" ".join(words).split()]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def run(folder: str, words: str) -> str:
    """What a command of turnout prints."""
    command = [sys.executable, "-m", "turnout", *words.split()]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main()
