"""The page: what it escapes, what it refuses, and what a real browser makes of it."""

import itertools
import json
import re
import sys

import numpy as np
import plotly.graph_objects
import pytest

from report.browser import WIDTHS, chromium, opened
from turnout.errors import FileProblem, MissingExtra
from turnout.report.page import Markup, Page, escape
from turnout.report.traces import INK, PALETTE, band, bars, chart, faded, focus, line, look, points, thin

NASTY = "<script>alert(1)</script> & \"quotes\" 'too'"


def figures(page):
    """The figures of a page, as the browser reads them."""
    found = re.findall(r'<script type="application/json" id="figure-\d+-data">(.*?)</script>', page.html(), re.DOTALL)
    return [json.loads(text) for text in found]


def plotly_figure():
    dots = plotly.graph_objects.Scatter(y=np.array([1.0, np.nan, 3.0, 2.0]), mode="markers")
    return plotly.graph_objects.Figure(dots, {"title": {"text": "of Plotly itself"}})


def sample():
    x = np.arange(3000)
    wave = np.sin(x / 300)
    page = Page("A <b>title</b>", "What it shows.")
    page.facts([("Rounds", 3000, "all of them"), ("Cost", 1234.5678, ""), ("Gap", "+0.66 %", "off")])
    page.heading("Plots").text("Plain & simple.\n\nA second paragraph.").text(Markup("<p>With <em>emphasis</em>.</p>"))
    page.figure(
        chart(
            [band(x, wave - 0.2, wave + 0.2), line(x, wave, "wave"), line(x, -wave, "other", **look(1))], x="x", y="y"
        ),
        "A wave in its band.",
    )
    page.figure(chart([points(wave[:50], wave[1:51], "dots")], x="now", y="next"), "Dots.")
    page.figure(plotly_figure(), "A figure that Plotly made.")
    page.heading("One more", level=3)
    page.figure(
        chart([bars([0, 1, 2], [3, 4], "bars"), line([0, 2], [3, 3], "level", colour=INK)], x="x", y="n"), "Bars."
    )
    page.heading("A table").table(
        ["name", *(f"column number {i}" for i in range(12))],
        [["row", *range(12)]],
        "A table that is too wide for a phone.",
    )
    return page.details("More", NASTY)


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return sample().save(tmp_path_factory.mktemp("page") / "page.html")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=WIDTHS)
def test_a_browser_shows_it_all(browser, saved, scheme, width):
    with opened(browser, saved, scheme=scheme, width=width) as view:
        view.assert_healthy()
        assert len(view.plots()) == 4
        assert view.look("document.title") == "A <b>title</b>"
        assert view.look("document.querySelectorAll('h1').length") == 1
        assert view.look("document.querySelectorAll('.scroll')[0].scrollWidth > 360")
        assert all(drawn[0] <= width for drawn in view.plots())
        assert view.look("document.querySelectorAll('#figure-3 .point').length") == 3  # and a gap


def test_plots_follow_the_colours_of_the_page(browser, saved):
    seen = {}
    with opened(browser, saved) as view:
        for scheme in ("light", "dark", "light"):
            view.page.emulate_media(color_scheme=scheme)
            view.settle()
            now = (
                view.css("body", "background-color"),
                view.css(".xtick text", "fill"),
                view.css(".gridlayer path", "stroke"),
            )
            assert seen.setdefault(scheme, now) == now
            assert view.css(".main-svg", "background-color") in ("rgba(0, 0, 0, 0)", "transparent")
            reference = view.look("document.getElementById('figure-4').data[1].line.color")
            assert reference == view.css("html", "--ink").strip()
        view.assert_healthy()
    assert all(one != other for one, other in zip(seen["light"], seen["dark"], strict=True))
    for paper, ink, _ in seen.values():
        assert contrast(rgb(paper), rgb(ink)) > 7


def test_plots_follow_the_width_of_the_window(browser, saved):
    with opened(browser, saved) as view:
        view.page.set_viewport_size({"width": 700, "height": 800})
        view.settle()
        view.assert_healthy()
        assert all(drawn[0] < 700 for drawn in view.plots())


def test_no_button_sends_data_anywhere(browser, saved):
    with opened(browser, saved) as view:
        titles = view.look("[...document.querySelectorAll('#figure-1 .modebar-btn')].map(found => found.dataset.title)")
        assert titles == ["Download plot", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"]
        contexts = "[...document.querySelectorAll('.plot')].map(box => box._context)"
        assert view.look(f"{contexts}.every(found => !found.plotlyServerURL && !found.displaylogo)")
        with view.page.expect_download() as download:
            view.look("document.querySelector('#figure-1 .modebar-btn').click()")
        assert download.value.suggested_filename.endswith(".svg")
        view.assert_healthy()


def test_print_is_light_and_fits_the_sheet(browser, saved):
    with opened(browser, saved, scheme="dark") as view:
        view.look("window.dispatchEvent(new Event('beforeprint'))")
        view.settle()
        assert view.css("html", "--paper").strip() == "#fcfcfb"
        assert all(drawn[0] <= 700 for drawn in view.plots())
        view.look("window.dispatchEvent(new Event('afterprint'))")
        view.settle()
        assert view.css("html", "--paper").strip() == "#14181d"
        view.assert_healthy()


def test_the_browser_itself_refuses_the_network(browser, tmp_path):
    """Even HTML that was let in on purpose loads nothing from elsewhere."""
    page = Page("Quiet", "").text(Markup('<img src="https://example.org/x.png" alt="">'))
    with opened(browser, page.save(tmp_path / "page.html")) as view:
        assert any("Content Security Policy" in error for error in view.errors)


def test_all_text_is_escaped():
    page = Page(NASTY, NASTY).heading(NASTY).text(NASTY).facts([(NASTY, NASTY, NASTY)])
    page.table([NASTY], [[NASTY]], NASTY).details(NASTY, NASTY)
    assert "<script" not in page.html()
    assert page.html().count("&lt;script&gt;") == 14  # title and caption stand in two places
    page.figure(chart([line([0, 1], [0, 1], NASTY)], x="</script><script>", y=NASTY), NASTY)
    assert "alert(1)</script>" not in page.html()
    assert figures(page)[0]["layout"]["xaxis"]["title"]["text"] == "</script><script>"
    assert figures(page)[0]["data"][0]["name"].startswith("&lt;script&gt;")
    assert escape(Markup("<b>")) == "<b>"


def test_what_is_not_asked_for_is_not_there():
    plain = Page("Plain", "No plots.").text("Text.").html()
    assert len(plain) < 10_000
    assert "<script" not in plain
    whole = sample().html()
    assert whole.count("plotly.js v") == 1
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="(?!data:,)', whole)


def test_numbers_are_for_people():
    html = Page("", "").table(["a", "b", "c"], [["x", 1234567, -0.5], ["y", 0.123456789, "–"]], "").html()
    assert '<td class="number">1,234,567</td><td class="number">−0.5</td>' in html
    assert '<td class="number">0.123457</td><td class="number">–</td>' in html
    assert '<th scope="row">x</th>' in html


def test_figures_are_small_and_bring_no_colours_of_their_own():
    page = Page("", "").figure(chart([line([0, 1, 2], np.array([1.0, np.nan, 1 / 3]), "")], x="", y=""), "A gap.")
    assert figures(page)[0]["data"][0]["y"] == [1.0, None, 0.3333333]
    assert "template" in plotly_figure().to_plotly_json()["layout"]
    assert "template" not in figures(Page("", "").figure(plotly_figure(), ""))[0]["layout"]


def test_what_is_refused(tmp_path, monkeypatch):
    page = Page("", "")
    for level in (1, 3, 5):
        with pytest.raises(ValueError, match="level must be from 2 to 2 here"):
            page.heading("", level)
    with pytest.raises(ValueError, match="row must be of 2 cells"):
        page.table(["a", "b"], [[1]], "")
    for wrong in (3, {"layout": {}}):
        with pytest.raises(ValueError, match="figure must be a Plotly figure"):
            page.figure(wrong, "")
    with pytest.raises(FileProblem, match="no folder"):
        page.save(tmp_path / "none" / "page.html")
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    page.figure(chart([], x="", y=""), "")
    with pytest.raises(MissingExtra, match=r"pip install 'turnout\[lab\]'"):
        page.save(tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    assert Page("Old \udc80", "").save(str(path)) == path
    old = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(FileProblem, match="No space left"):
        Page("New", "").save(path)
    assert path.read_bytes() == old
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("gaps", [False, True])
def test_thinning_keeps_the_extremes(gaps):
    y = np.random.default_rng(0).normal(size=100_003)
    y[[777, 50_001]] = 40, -40
    if gaps:
        y[60_000:70_000] = np.nan
    x, thinned = thin(np.arange(len(y)), y)
    assert 900 < len(x) <= 2000
    assert np.all(np.diff(x) > 0)
    assert {0, 777, 50_001, len(y) - 1} <= set(x.tolist())
    assert np.array_equal(thinned, y[x], equal_nan=True)
    assert np.isnan(thinned).any() == gaps
    again = thin(x, thinned)
    assert again[0] is x
    assert again[1] is thinned


def test_a_long_band_still_holds_all():
    x, low = np.arange(50_000), np.random.default_rng(1).normal(size=50_000)
    trace = band(x, low, low + 1)
    assert len(trace["x"]) <= 4000
    assert (trace["y"].min(), trace["y"].max()) == (low.min(), low.max() + 1)


def test_bad_traces():
    for x, y in (([0, 1], [0]), ([[0]], [[0]])):
        with pytest.raises(ValueError, match="two series of equal length"):
            line(x, y, "")
    with pytest.raises(ValueError, match="most must be 8 or more"):
        thin([0], [0], most=2)
    with pytest.raises(ValueError, match="one more than heights"):
        bars([0, 1], [1, 2], "")
    with pytest.raises(ValueError, match="#rrggbb"):
        faded(INK, 0.5)


def test_a_view_leaves_out_only_a_steep_start():
    steady = np.tile([600.0, 610.0], 100)
    assert focus([steady]) is None
    assert focus([np.r_[1200.0, 0.0, steady], [605.0, 605.0]]) == [599.0, 611.0]
    assert focus([[5.0]]) is None
    assert focus([np.full(100, 3.0)]) is None


def rgb(colour):
    """Linear red, green and blue of #rrggbb or rgb(r, g, b)."""
    if colour.startswith("#"):
        values = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    else:
        values = [int(value) for value in re.findall(r"\d+", colour)[:3]]
    share = np.array(values) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def contrast(one, other):
    """The contrast of two colours, as the WCAG defines it."""
    dark, light = sorted(float(colour @ [0.2126, 0.7152, 0.0722]) for colour in (one, other))
    return (light + 0.05) / (dark + 0.05)


# What full protanopia, deuteranopia and tritanopia make of a colour (Machado, Oliveira and Fernandes, 2009).
BLINDNESS = [
    np.eye(3),
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
]


def oklab(linear):
    """A colour in the OKLab space, in which distances are about as seen."""
    to_cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    to_lab = [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
    return np.array(to_lab) @ np.cbrt(np.array(to_cones) @ np.clip(linear, 0, 1))


def test_the_palette_can_be_told_apart_by_all():
    for colour, paper in itertools.product(PALETTE, ("#fcfcfb", "#14181d")):
        assert contrast(rgb(colour), rgb(paper)) >= 3
    for (one, other), seen in itertools.product(itertools.combinations(PALETTE, 2), BLINDNESS):
        distance = np.linalg.norm(oklab(np.array(seen) @ rgb(one)) - oklab(np.array(seen) @ rgb(other)))
        assert distance > 0.06, (one, other)
