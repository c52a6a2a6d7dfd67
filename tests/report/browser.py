"""A page in a real browser: what a reader sees, and everything that the page asks for."""

import contextlib
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

WIDTHS = {"desk": 1100, "phone": 360}


@contextlib.contextmanager
def chromium():
    """A headless Chromium; skips the test, with what to install, where there is none."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("playwright is not installed: pip install playwright")
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class View:
    """An open page, and what happened while it was open.

    Attributes:
        page: Playwright's page.
        errors: what the browser's console called an error or a warning, and exceptions.
        requests: the addresses of all that was asked for, the page itself first.
    """

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def look(self, code):
        """What a JavaScript expression gives in the page."""
        return self.page.evaluate(code)

    def css(self, selector, name):
        """A computed style of the first element that matches."""
        return self.look(f"getComputedStyle(document.querySelector({selector!r})).getPropertyValue({name!r})")

    def plots(self):
        """The drawn size of each figure, [width, height]; [0, 0] where nothing is drawn."""
        return self.look("""[...document.querySelectorAll(".plot")].map(box => {
            const drawn = box.querySelector(".main-svg")?.getBoundingClientRect();
            return drawn ? [drawn.width, drawn.height] : [0, 0];
        })""")

    def overflow(self):
        """By how many pixels the page is wider than the window."""
        return self.look("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def settle(self):
        """Wait until every figure is drawn, and for what a change of colours or width still has to redraw."""
        if self.look("document.querySelector('.plot') !== null"):
            self.page.wait_for_function("document.documentElement.dataset.drawn === 'yes'")
        self.page.wait_for_timeout(250)

    def assert_healthy(self):
        """Nothing went wrong, nothing left the file, every figure is drawn, and nothing sticks out."""
        assert self.errors == []
        left = [address for address in self.requests if not address.startswith(("file:", "data:", "blob:"))]
        assert left == []
        assert sum(address.startswith("file:") for address in self.requests) == 1  # the page, and no neighbour
        assert all(width > 100 and height > 100 for width, height in self.plots())
        assert self.overflow() <= 0


@contextlib.contextmanager
def opened(browser, path, *, scheme="light", width=WIDTHS["desk"]):
    """A saved page in a window of a width, in the light or the dark scheme."""
    touch = {"is_mobile": True, "has_touch": True, "device_scale_factor": 2} if width < 600 else {}
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 800}, **touch)
    try:
        page = context.new_page()
        view = View(page)
        page.on("console", lambda said: said.type in ("error", "warning") and view.errors.append(said.text))
        page.on("pageerror", lambda error: view.errors.append(str(error)))
        page.on("request", lambda request: view.requests.append(request.url))
        page.goto(Path(path).resolve().as_uri())
        view.settle()
        yield view
    finally:
        context.close()
