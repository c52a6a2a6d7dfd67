"""The list of devices in a real browser: pages, states, look-up, revoking; and rows that keep still for a reader."""

import pytest

from report.browser import chromium
from service.fake_operated import DEVICES, GONE, FakeOperated, served
from service.operator_view import WIDTHS, opened


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def desk(browser):
    """A run and its open page."""
    operated = FakeOperated(rounds=5)
    with served(operated) as server, opened(browser, server) as view:
        view.operated, view.server = operated, server
        view.lists(range(50))
        yield view


def test_devices_a_page_at_a_time_by_state_and_by_number(desk):
    desk.lists(range(50))
    assert desk.text("devices-found") == f"1–50 of {DEVICES:,}"
    assert desk.text("device-states").split()[2:] == ["All", "1,200", "Here", "1,193", "Gone", "7", "Left", "0"]
    desk.page.click("#device-after")
    desk.lists(range(50, 100))
    assert "missed 63 in a row" in desk.page.inner_text("[data-slot='60']")
    assert desk.page.evaluate("document.getElementById('devices').getBoundingClientRect().top") >= -1
    desk.page.click("#device-before")
    desk.lists(range(50))
    desk.page.press("#device-before", "Enter")  # there is none: nothing happens, and the focus stays
    assert desk.page.evaluate("document.activeElement.id") == "device-before"
    desk.choose("gone")
    desk.lists(GONE)
    assert desk.text("devices-found") == "7 devices"
    assert desk.page.is_hidden("#device-pages")
    desk.choose("left")
    desk.lists([])
    assert desk.text("devices-found") == "No device has left."
    desk.page.type("#device-number", "1199")
    desk.lists([1199])
    assert desk.page.is_checked("#device-states [value=all]")
    desk.page.type("#device-number", "5")
    desk.wait("#devices-found:text('No device has the number 11995.')")
    desk.page.type("#device-number", "x")
    desk.wait("#devices-found:text('digits only')")
    desk.page.fill("#device-number", "")
    desk.lists(range(50))
    desk.assert_healthy(desk.server)


def test_a_device_is_revoked_by_keyboard(desk):
    keys = desk.page.keyboard
    desk.page.focus("#device-number")
    keys.type("17")
    desk.lists([17])
    keys.press("Tab")
    assert desk.page.evaluate("document.activeElement.ariaLabel") == "Revoke device 17"
    keys.press("Enter")
    desk.wait("#ask[open]")
    assert desk.text("ask-title") == "Revoke device 17?"
    keys.press("Enter")  # the focus is on Cancel
    desk.wait("#ask:not([open])")
    assert not desk.operated.left
    keys.press("Enter")
    desk.wait("#ask[open]")
    keys.press("Tab")
    keys.press("Enter")
    desk.wait("#devices-said.good")
    desk.wait("[data-slot='17'] .state.left")
    assert list(desk.operated.left) == [17]
    desk.wait("[data-slot='17']:focus")
    assert not desk.page.is_visible("[data-slot='17'] button")
    desk.wait("#changes td:text-is('device 17')")
    assert desk.operated.changes[-1].who == "operator page"
    desk.wait("#count-left:text('1')")
    desk.page.fill("#device-number", "")
    desk.assert_healthy(desk.server)


def test_rows_do_not_move_under_a_reader(desk):
    desk.choose("gone")
    desk.lists(GONE)
    desk.page.hover("[data-slot='120']")
    desk.operated.roll.missed[60] = 0  # it has come back
    desk.operated.roll.missed[120] += 1
    desk.server.do(desk.operated.close_round)
    desk.wait("#count-gone:text('6')")
    assert desk.slots() == list(GONE)
    assert "missed 124" in desk.page.inner_text("[data-slot='120']"), "but what they say is fresh"
    assert "rows do not move" in desk.text("devices-when")
    desk.page.focus("#device-number")
    desk.page.keyboard.type("1")
    desk.lists([1])
    with desk.page.expect_response("**/api/devices?number=1"):
        desk.server.do(desk.operated.close_round)
    desk.page.keyboard.type("80")  # the field is as it was left
    desk.lists([180])
    desk.page.fill("#device-number", "")
    desk.choose("gone")
    desk.lists(GONE[1:])
    assert desk.text("devices-when") == ""
    desk.page.mouse.move(0, 0)
    desk.operated.roll.missed[180] = 0
    desk.server.do(desk.operated.close_round)
    desk.wait("#count-gone:text('5')")
    desk.page.wait_for_timeout(3000)  # nobody has scrolled or touched anything for a while
    desk.server.do(desk.operated.close_round)
    desk.lists([120, *GONE[3:]])
    desk.assert_healthy(desk.server)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_devices_on_a_phone(browser, scheme):
    operated = FakeOperated(rounds=3)
    with served(operated) as server, opened(browser, server, scheme=scheme, width=WIDTHS["phone"]) as view:
        view.lists(range(50))
        view.page.tap("label:has([value=gone])")
        view.lists(GONE)
        heights = "[...document.querySelectorAll('#device-table thead th')].map(h => h.getBoundingClientRect().height)"
        assert max(view.page.evaluate(heights)) < 40, "headings have one line"
        ends = "(what) => document.querySelector(what).getBoundingClientRect().right"
        assert view.page.evaluate(ends, "#device-table button") <= view.page.evaluate(ends, "#device-table")
        view.page.tap("[data-slot='300'] button")
        view.page.tap("#ask-yes")
        view.wait("[data-slot='300'] .state.left")
        assert list(operated.left) == [300]
        view.assert_healthy(server)
