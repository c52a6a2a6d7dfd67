"""The list of devices in a real browser: pages, states, look-up, revoking; and rows that keep still for a reader."""

from dataclasses import replace

import pytest

from report.browser import chromium
from service.fake_operated import DEVICES, GONE, FakeOperated, served
from service.operator_view import WIDTHS, opened
from turnout.service.store import Names


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
    assert "missed 63 in a row" in desk.page.inner_text("[data-number='60']")
    assert desk.page.evaluate("document.getElementById('device-states').getBoundingClientRect().top") >= -1
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
    desk.page.type("#device-search", "1199")
    desk.wait("#devices-found:text-is('No device that has left is found for “1199”.')")
    assert desk.text("device-states").split()[2:] == ["All", "1", "Here", "1", "Gone", "0", "Left", "0"]
    desk.choose("all")
    desk.lists([1199])
    desk.page.fill("#device-search", "")
    desk.lists(range(50))
    desk.assert_healthy(desk.server)


def test_a_device_is_revoked_by_keyboard(desk):
    keys = desk.page.keyboard
    desk.page.focus("#device-search")
    keys.type("charger 0017")
    desk.lists([17])
    keys.press("Tab")
    assert desk.page.evaluate("document.activeElement.ariaLabel") == "charger 0017: change the names of device 17"
    keys.press("Tab")
    assert desk.page.evaluate("document.activeElement.ariaLabel") == "Revoke device 17"
    keys.press("Enter")
    desk.wait("#ask[open]")
    assert desk.text("ask-title") == "Revoke device 17, “charger 0017”?"
    keys.press("Enter")  # the focus is on Cancel
    desk.wait("#ask:not([open])")
    assert not desk.operated.left
    keys.press("Enter")
    desk.wait("#ask[open]")
    keys.press("Tab")
    keys.press("Enter")
    desk.wait("#devices-said.good")
    desk.wait("[data-number='17'] .state.left")
    assert list(desk.operated.left) == [17]
    desk.wait("[data-number='17']:focus")
    assert not desk.page.is_visible("[data-number='17'] .quiet")
    desk.wait("#changes td:text-is('device 17')")
    assert desk.operated.changes[-1].who == "operator page"
    desk.wait("#count-left:text('1')")
    desk.page.fill("#device-search", "")
    desk.assert_healthy(desk.server)


def test_rows_do_not_move_under_a_reader(desk):
    desk.choose("gone")
    desk.lists(GONE)
    desk.page.hover("[data-number='120']")
    desk.operated.roll.missed[60] = 0  # it has come back
    desk.operated.roll.missed[120] += 1
    desk.server.do(desk.operated.close_round)
    desk.wait("#count-gone:text('6')")
    assert desk.slots() == list(GONE)
    assert "missed 124" in desk.page.inner_text("[data-number='120']"), "but what they say is fresh"
    assert "rows do not move" in desk.text("devices-when")
    desk.page.focus("#device-search")
    desk.page.keyboard.type("180")
    desk.lists([180])
    with desk.page.expect_response("**/api/devices?*search=180"):
        desk.server.do(desk.operated.close_round)
    desk.page.keyboard.type("1")  # the field is as it was left
    desk.lists([])
    desk.page.fill("#device-search", "")
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
        assert view.page.evaluate(ends, "#device-table .quiet") <= view.page.evaluate(ends, "#device-table")
        view.page.tap("[data-number='300'] .quiet")
        view.page.tap("#ask-yes")
        view.wait("[data-number='300'] .state.left")
        assert list(operated.left) == [300]
        view.assert_healthy(server)


def test_sites_then_their_devices(desk):
    rows = "[...document.querySelectorAll('#site-rows tr')].map(row => row.innerText.split(/\\s*\\t\\s*/).join('|'))"
    assert desk.page.evaluate(rows) == [
        "depot north|293|7|0", "depot south|300|0|0", "hall 2|300|0|0", "no site|300|0|0",
    ]  # fmt: skip
    desk.page.click("#site-rows button:text-is('hall 2')")
    desk.lists(range(2, 152, 3))
    assert desk.text("site-name") == "Devices at hall 2."
    assert desk.text("device-states").split()[2:] == ["All", "300", "Here", "300", "Gone", "0", "Left", "0"]
    desk.choose("gone")
    desk.wait("#devices-found:text-is('No device is gone at hall 2.')")
    desk.page.click("#site-rows button:text-is('depot north')")
    desk.lists(GONE)
    desk.page.click("#site-all")
    desk.choose("all")
    desk.lists(range(50))
    desk.page.click("#site-rows button:text-is('no site')")
    desk.lists(range(900, 950))
    desk.page.click("#site-rows button:text-is('no site')")  # again: all of them
    desk.lists(range(50))
    desk.assert_healthy(desk.server)


def test_a_device_is_named_and_found_by_its_name(desk):
    desk.page.fill("#device-search", "0017")
    desk.lists([17])
    desk.page.click("[data-number='17'] [data-edit]")
    desk.wait("#naming[open]")
    assert "weight 3, joined in round 0" in desk.text("naming-text")
    desk.page.click("#naming-no")
    assert desk.operated.roll[17].names.label == "charger 0017"
    desk.page.click("[data-number='17'] [data-edit]")
    desk.page.fill("#naming [name=label]", "<b>gate</b> & “lift”")
    desk.page.fill("#naming [name=site]", "hall 3")
    desk.page.press("#naming [name=note]", "Enter")
    desk.wait("#devices-said.good")
    names = desk.operated.roll[17].names
    assert (names.label, names.site, names.note) == ("<b>gate</b> & “lift”", "hall 3", "")
    desk.page.fill("#device-search", "GATE")
    desk.lists([17])
    assert "<b>gate</b> & “lift”" in desk.page.inner_text("[data-number='17']"), "as text, not as HTML"
    desk.wait("#site-rows button:text-is('hall 3')")
    desk.page.fill("#device-search", "hall 3")
    desk.lists([17])
    desk.page.fill("#device-search", "4523540f")  # its tag
    desk.lists([17])
    desk.assert_healthy(desk.server)


def test_codes_are_listed_without_the_codes_and_voided(desk):
    desk.page.fill("#codes-form [name=label]", "charger 1201")
    desk.page.fill("#codes-form [name=site]", "hall 2")
    desk.page.click("#codes-form button")
    desk.wait("#codes-said.bad:text('label must be of one code alone')")
    desk.errors.clear()  # the browser tells of every refusal
    desk.page.fill("#codes-form [name=count]", "1")
    desk.page.click("#codes-form button")
    desk.wait("#codes-note:text('“charger 1201”, site “hall 2”')")
    made = desk.page.input_value("#codes")
    desk.page.click("#hide")
    desk.page.click("#codes-list summary")
    desk.wait("#code-rows tr")
    (code,) = desk.operated.codes_made.values()
    assert desk.page.inner_text("#code-rows tr").split("\n")[:3] == ["charger 1201", code.tag, "hall 2"]
    assert made not in desk.page.content()
    desk.page.click("#code-rows .quiet")
    desk.page.click("#ask-yes")
    desk.wait("#codes-found:text-is('No unused code.')")
    assert desk.text("code-states").split()[2:] == ["Unused", "0", "Used", "0", "Expired", "0", "Void", "1"]
    desk.page.check("#code-states [value=void]")
    desk.wait(f"#code-rows [data-tag='{code.tag}']")
    assert not desk.page.is_visible("#code-rows .quiet")
    assert desk.operated.changes[-1].what == "voided"
    desk.assert_healthy(desk.server)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_longest_names_fit_a_phone(browser, scheme):
    operated = FakeOperated(rounds=3)
    long = Names("Ladesäule_" * 6, "Werk Süd-Ost, Halle 2, 3. Untergeschoß, Platz 47 links", "x" * 200)
    operated.roll.take([replace(operated.roll[slot], names=long) for slot in range(20)])
    with served(operated) as server, opened(browser, server, scheme=scheme, width=WIDTHS["phone"]) as view:
        view.lists(range(50))
        view.assert_healthy(server)
        ends = "(what) => Math.max(...[...document.querySelectorAll(what)].map(e => e.getBoundingClientRect().right))"
        for what in ("#device-rows td", "#site-rows td", "#device-rows .quiet"):
            assert view.page.evaluate(ends, what) <= WIDTHS["phone"]
        view.page.tap("#site-rows tr:has(button:text('Werk')) button")
        view.lists(range(20))
        view.page.tap("[data-number='3'] [data-edit]")
        view.wait("#naming[open]")
        assert view.page.evaluate(ends, "#naming, #naming input") <= WIDTHS["phone"]
        view.page.fill("#naming [name=label]", "gate 3")
        view.page.tap("#naming .sure")
        view.wait("[data-number='3'] [data-edit]:text-is('gate 3')")
        view.assert_healthy(server)
