"""The operator's page in a real browser, as tests read it."""

import contextlib
import time

from service.fake_operated import PASSWORD

WIDTHS = {"desk": 1320, "phone": 390}


class View:
    """An open page, with what its console said."""

    def __init__(self, page):
        self.page, self.errors, self.requests = page, [], []
        page.on("console", lambda said: said.type in ("error", "warning") and self.errors.append(said.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def text(self, name):
        return self.page.inner_text(f"#{name}")

    def wait(self, selector, **how):
        self.page.wait_for_selector(selector, **({"state": "attached", "timeout": 20_000} | how))

    def drawn(self, rounds):
        """Wait until the round is drawn."""
        self.wait(f"html[data-drawn='{rounds}']")

    def colours(self):
        """Of the paper, and of the plots' letters."""
        body = self.page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--paper').trim()")
        letters = "getComputedStyle(document.querySelector('.legendtext')).fill"
        return body, self.page.evaluate(letters)

    def overflow(self):
        return self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")

    def slots(self):
        """The numbers in the list of devices."""
        return self.page.evaluate("[...document.querySelectorAll('#device-rows th')].map(th => Number(th.textContent))")

    def lists(self, slots):
        """Wait until these devices are listed."""
        began = time.monotonic()
        while self.slots() != list(slots):
            assert time.monotonic() - began < 20, self.slots()
            time.sleep(0.02)

    def choose(self, state):
        """The devices of a state."""
        self.page.check(f"#device-states [value={state}]")

    def assert_healthy(self, server):
        assert self.errors == []
        assert all(address.startswith((server.url, "data:")) for address in self.requests)
        assert self.overflow() <= 0


@contextlib.contextmanager
def opened(browser, server, *, scheme="light", width=WIDTHS["desk"], password=PASSWORD):
    touch = {"is_mobile": True, "has_touch": True, "device_scale_factor": 2} if width < 600 else {}
    credentials = {"username": "operator", "password": password}
    size = {"width": width, "height": 844}
    context = browser.new_context(color_scheme=scheme, viewport=size, http_credentials=credentials, **touch)
    try:
        view = View(context.new_page())
        view.answer = view.page.goto(server.url)  # type: ignore[attr-defined]
        yield view
    finally:
        context.close()
