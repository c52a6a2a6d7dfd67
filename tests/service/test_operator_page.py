"""The operator's page in a real browser: live, in both schemes, on a phone, by keyboard, cut off and back."""

import itertools
import re
import time

import pytest

from report.browser import chromium
from service.fake_operated import FakeOperated, Served, served
from service.operator_view import WIDTHS, opened


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


def linear(colour):
    values = [int(part, 16) for part in re.findall("..", colour.lstrip("#"))]
    return [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in (value / 255 for value in values)]


def contrast(one, other):
    """As the WCAG defines it."""
    dark, light = sorted(sum(map(float.__mul__, [0.2126, 0.7152, 0.0722], linear(c))) for c in (one, other))
    return (light + 0.05) / (dark + 0.05)


@pytest.fixture(scope="module")
def desk(browser):
    """A run and its open page, for tests that leave both as they may."""
    operated = FakeOperated(rounds=30)
    with served(operated) as server, opened(browser, server) as view:
        view.drawn(29)
        view.operated, view.server = operated, server
        yield view


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_shows_the_run(browser, width):
    faults = {"late reports": 0, "wrong tokens": 14, "full disk": 2}
    operated = FakeOperated(rounds=520, outage=(480, 500), faults=faults)
    with served(operated) as server, opened(browser, server, width=WIDTHS[width]) as view:
        view.drawn(519)
        assert view.text("run") == "night-shift"
        assert view.text("turnout") == f"{operated.books[-1]['participants']} of 600"
        assert "hard limit 700" in view.text("turnout-note")
        assert (view.text("heard"), view.text("late"), view.text("gone")) == ("1,179 of 1,200", "14", "7")
        assert "against an observer of every report" in view.text("account")
        assert view.text("faults").split("\n") == ["wrong tokens", "14", "full disk", "2", "late reports", "0"]
        sizes = "[...document.querySelectorAll('.plot .main-svg')].map(svg => svg.getBoundingClientRect().width)"
        assert min(view.page.evaluate(sizes)) > 180
        shown = view.page.evaluate("document.getElementById('turnout-plot').data.map(t => [t.name, t.x.length])")
        assert {"turnout", "capacity", "hard limit", "signal waits"} <= {name for name, _ in shown}
        assert shown[0] == ["turnout", 500]
        shapes = view.page.evaluate("document.getElementById('turnout-plot').layout.shapes.map(s => [s.x0, s.x1])")
        assert shapes == [[479.5, 499.5]]
        view.wait("#changes td")
        light = view.colours()
        view.page.emulate_media(color_scheme="dark")
        began = time.monotonic()
        while view.colours()[1] == light[1]:
            assert time.monotonic() - began < 20, "the plots do not follow the scheme"
        assert contrast(light[0], view.colours()[0]) > 10
        view.assert_healthy(server)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(desk, scheme):
    desk.page.emulate_media(color_scheme=scheme)
    read = "names => names.map(n => getComputedStyle(document.documentElement).getPropertyValue('--' + n).trim())"
    inks, papers = ["ink", "muted", "accent", "good", "warn", "bad"], ["paper", "raised", "tint"]
    pairs = [*itertools.product(inks, papers), ("warn", "warn-tint"), ("bad", "bad-tint"), ("on-accent", "accent")]
    for ink, paper in pairs:
        assert contrast(*desk.page.evaluate(read, [ink, paper])) >= 4.5, (ink, paper)
    for paper in papers:
        assert contrast(*desk.page.evaluate(read, ["field", paper])) >= 3, paper


def test_it_is_live(desk):
    closed = len(desk.operated.books)
    desk.server.do(desk.operated.close_round)
    desk.drawn(closed)
    assert desk.text("round") == str(closed + 1)
    assert desk.text("turnout") == f"{desk.operated.books[-1]['participants']} of {desk.operated.capacity:g}"
    assert not desk.page.is_visible("#faults .some")
    desk.operated.faults["full disk"] = 5
    desk.server.do(desk.operated.tell)
    desk.wait("#faults .some")
    assert desk.text("faults").startswith("full disk")
    desk.assert_healthy(desk.server)


def test_trouble_is_shown_at_the_top_while_it_lasts(desk):
    closed = len(desk.operated.books)
    desk.operated.outage = range(closed, closed + 1)
    desk.server.do(desk.operated.close_round)
    desk.wait("#troubles", state="visible")
    assert "the signal is frozen" in desk.text("troubles").lower()
    assert desk.page.title().startswith("⚠")
    desk.server.do(desk.operated.close_round)
    desk.wait("#troubles", state="hidden")


def test_a_run_before_its_first_round(browser):
    with served(FakeOperated(waiting_for=12, faults={})) as server, opened(browser, server) as view:
        view.drawn("empty")
        assert "Waiting for 12 more devices" in view.text("waiting")
        assert "No round has closed yet" in view.text("turnout-plot")
        assert view.text("no-faults") == "None."
        view.assert_healthy(server)


def test_a_wrong_password_shows_nothing(browser):
    with served(FakeOperated(rounds=30)) as server, opened(browser, server, password="wrong") as view:
        assert view.answer.status == 401
        assert "night-shift" not in view.page.content()


def test_capacity_and_modes_by_keyboard(desk):
    operated, server, view = desk.operated, desk.server, desk
    keys = view.page.keyboard
    view.page.focus("#capacity")
    keys.press("Control+a")
    keys.type("450")
    keys.press("Enter")
    view.wait("#ask[open]")
    assert "From 600 to 450" in view.text("ask-text")
    keys.press("Escape")
    view.wait("#ask:not([open])")
    assert operated.capacity == 600
    view.page.focus("#capacity")
    keys.press("Enter")
    view.wait("#ask[open]")
    keys.press("Enter")
    view.wait("#done.good")
    assert operated.capacity == 450
    view.wait("#changes td:text('600 -> 450')")
    assert re.fullmatch(r"When \(\S+\)", view.text("when")), "times have their zone"

    view.page.focus("[data-mode=stopped]")
    keys.press("Enter")
    view.wait("#ask[open]")
    keys.press("Enter")  # the focus is on Cancel
    view.wait("#ask:not([open])")
    assert operated.mode == "running"
    for mode, word in (("paused", "Paused"), ("running", "Running"), ("draining", "Draining")):
        view.page.click(f"[data-mode={mode}]")
        view.wait(f"#mode:text('{word}')")
        assert operated.mode == mode
        assert ("the last that closed" in view.text("turnout-note")) == (mode == "paused")
    view.page.click("[data-mode=stopped]")
    view.page.click("#ask-yes")
    view.wait("#mode:text('Stopping')")
    assert operated.mode == "stopped"
    view.page.click("[data-mode=running]")
    view.wait("#mode:text('Running')")
    view.assert_healthy(server)


def test_a_capacity_above_the_hard_limit_is_refused_without_a_question(desk):
    desk.page.fill("#capacity", "701")
    desk.page.click("#capacity-form button")
    desk.wait("#done.bad")
    assert "must be at most the hard limit of 700" in desk.text("done")
    assert not desk.page.is_visible("#ask")


def test_a_long_word_in_the_audit_log_fits_a_phone(browser):
    operated = FakeOperated(rounds=3)
    operated.note("command line", "rules", "a" * 47)
    with served(operated) as server, opened(browser, server, width=WIDTHS["phone"]) as view:
        view.wait(f"#changes td:text('{'a' * 47}')")
        assert view.overflow() <= 0
        assert view.page.evaluate("document.getElementById('changes').getBoundingClientRect().right") <= WIDTHS["phone"]


def test_what_is_refused_is_said(desk):
    desk.operated.hard_limit = None
    desk.operated.tell()
    desk.wait("#turnout-note:text('no hard limit')")
    desk.page.fill("#capacity", "2000000")
    desk.page.click("#capacity-form button")
    desk.page.click("#ask-yes")
    desk.wait("#done.bad:text('1000000')")
    assert "capacity must be at most 1000000" in desk.text("done")
    desk.operated.hard_limit = 700.0
    desk.operated.tell()
    assert len(desk.errors) == 1  # the browser's own line about the refusal
    desk.errors.clear()


def test_codes_are_shown_once_and_copied(desk):
    operated, server, view = desk.operated, desk.server, desk
    view.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    view.page.fill("#codes-form [name=count]", "3")
    view.page.click("#codes-form button")
    view.wait("#codes-made", state="visible")
    codes = view.page.input_value("#codes").split("\n")
    assert len(set(codes)) == 3
    assert operated.changes[-1].what == "codes"
    view.page.click("#copy")
    view.wait("#codes-said:text('Copied')")
    assert view.page.evaluate("navigator.clipboard.readText()").split("\n") == codes
    view.page.click("#hide")
    view.wait("#codes-made", state="hidden")
    assert codes[0] not in view.page.content() + view.page.input_value("#codes")
    view.assert_healthy(server)


def test_a_lost_connection_is_shown_and_comes_back_by_itself(browser):
    operated = FakeOperated(rounds=30)
    server = Served(operated)
    try:
        with opened(browser, server) as view:
            view.drawn(29)
            view.lists(range(50))
            server.stop()
            view.wait("#lost", state="visible")
            assert view.text("link-text") == "Connection lost"
            assert view.page.is_disabled("[data-mode=paused]")
            assert view.page.is_disabled("[data-number='3'] .quiet")
            operated.close_round()
            server = Served(operated, port=server.port)
            view.drawn(30)
            assert view.text("link-text") == "Live"
            assert not view.page.is_visible("#lost")
            assert view.page.is_enabled("[data-mode=paused]")
            assert view.page.is_enabled("[data-number='3'] .quiet")
            shown = view.page.evaluate("document.getElementById('turnout-plot').data[0].x")
            assert shown == list(range(31))  # none lost, none twice
    finally:
        server.stop()


def test_a_form_of_another_site_changes_nothing(desk, tmp_path):
    """A page elsewhere knows the address; the browser knows the password, and sends it along."""
    evil = tmp_path / "evil.html"
    evil.write_text(
        f"<form method=post enctype=text/plain action='{desk.server.url}/api/control'>"
        """<input name='{"mode": "stopped", "x": "' value='"}'><button>Win a prize</button></form>"""
    )
    page = desk.page.context.new_page()
    page.goto(evil.as_uri())
    with page.expect_navigation() as went:
        page.click("button")
    assert went.value.status == 403
    page.close()
    assert desk.operated.mode == "running"
