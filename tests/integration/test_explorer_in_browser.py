"""The explorer in a browser: served and exported, by slider, key and address, on desk and phone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from threading import Thread

import matplotlib.image as mpimg
import numpy as np
import pytest

from tests.support.reports.browser import NEEDS_BROWSER
from tests.support.reports.driven_browser import Page
from tests.support.runs.explored import tiny_explorer
from waferstream.explorer.explorer import Explorer
from waferstream.explorer.export import write_page
from waferstream.explorer.server import Server

pytestmark = NEEDS_BROWSER

NAMELESS = """[...document.querySelectorAll("input, button, svg")]
  .filter((each) => !(each.labels?.length || each.ariaLabel || each.textContent.trim()))
  .map((each) => each.outerHTML)"""
MOST_BYTES = 20 << 20


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Explorer, "moves_from", lambda *_: iter(()))
        server = Server(tiny_explorer(), 0)
        thread = Thread(target=server.serve)
        thread.start()
        yield server.url
        server.close()
        thread.join()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page of three knobs, which takes a second to write."""
    path = tmp_path_factory.mktemp("page") / "page.html"
    explorer = tiny_explorer()
    few = ("systems", "clock", "fan_out", "links")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explorer, "knobs", tuple(k for k in explorer.knobs if k.name in few))
        write_page(explorer, path)
    assert path.stat().st_size < MOST_BYTES
    return path.as_uri()


def opened(page: Page, url: str) -> Page:
    page.open("about:blank")  # another address of the same page would not load it
    page.open(url)
    page.see("document.querySelector('#tiles strong')")
    return page


def throughput(page: Page) -> str:
    return page.text("#tiles strong")


def slide(page: Page, name: str, stop: int) -> None:
    page.choose(f"#slider-{name}", str(stop))
    page.see("!document.querySelector('#busy').textContent")


def test_a_slider_moves_the_picture(page: Page, url: str) -> None:
    opened(page, url)
    before = throughput(page)
    slide(page, "clock", 0)
    page.see(f"document.querySelector('#tiles strong').innerText !== {before!r}")
    assert "--machine.system.clock_hz 550000000" in page.text("#command")
    assert "clock_hz: 550000000" in page.text("#yaml")
    assert "clock_hz" in page.text("#band-note")
    assert page.run("location.hash") == "#clock=550000000"
    page.click("#reset")
    page.see(f"document.querySelector('#tiles strong').innerText === {before!r}")


def test_a_switch_changes_the_system(page: Page, url: str) -> None:
    """Title, command and the numbers of sliders at rest are of the other one; keys reach it."""
    opened(page, url)
    page.click("#kind-CS-3")
    page.see("document.querySelector('#title').textContent.endsWith('on CS-3')")
    assert "--machine.system.name CS-3" in page.text("#command")
    assert page.run("document.querySelector('#clock').value") == "1.085"
    assert page.run("location.hash") == "#kind=2"
    page.click("#reset")
    page.see("document.querySelector('#title').textContent.endsWith('on CS-2')")
    assert page.run("document.querySelector('#kind-CS-2').checked")


def test_a_point_of_the_curve_is_chosen_by_a_click(page: Page, url: str) -> None:
    opened(page, url)
    page.run("document.querySelectorAll('#curve .hit')[2].dispatchEvent(new MouseEvent('click'))")
    page.see("document.querySelector('#command').textContent.includes('--num_csx 4')")
    assert page.run("document.querySelector('#systems').value") == "4"


def test_keys_move_a_slider_and_type_a_number(page: Page, url: str) -> None:
    opened(page, url)
    page.run("document.querySelector('#slider-fan_out').focus()")
    assert page.run("document.activeElement.getAttribute('aria-valuetext')") == "4 per switch"
    page.run("document.querySelector('#fan_out').focus()")
    page.run("document.querySelector('#fan_out').select()")
    page.type("3")
    page.press("Enter")
    page.see("document.querySelector('#command').textContent.includes('fan_out 3')")


def test_nonsense_is_refused_with_rule_and_remedy(page: Page, url: str) -> None:
    opened(page, url)
    for text, words in (("8", ("node_ports", "lower swarmx.fan_out")), ("many", ("whole number",))):
        page.run(
            f"(f => {{ f.value = {text!r}; f.dispatchEvent(new Event('change')); }})"
            "(document.querySelector('#fan_out'))"
        )
        page.see(f"document.querySelector('#fault').innerText.includes({words[0]!r})")
        assert all(word in page.text("#fault") for word in words)
        assert page.run("document.querySelector('#fan_out').ariaInvalid") == "true"
        assert page.run("document.querySelector('#answer').className") == "stale"
    page.troubles.clear()  # the refusals
    page.click("#reset")
    page.see("document.querySelector('#fault').hidden")


def test_address_opens_a_setting(page: Page, url: str) -> None:
    opened(page, f"{url}#systems=2&memory=1000000000000")
    page.see("document.querySelector('#command').textContent.includes('1000000000000')")
    assert "--num_csx 2" in page.text("#command")


def test_exported_page_answers_without_a_server(page: Page, exported: str) -> None:
    """A third knob sends back the first."""
    opened(page, exported)
    slide(page, "clock", 0)
    slide(page, "fan_out", 0)
    assert "fan_out 2" in page.text("#command")
    slide(page, "links", 0)
    assert "Clock went back" in page.text("#hint")
    assert "clock_hz" not in page.text("#command")
    slide(page, "systems", 1)
    assert "--num_csx 2" in page.text("#command")


@pytest.mark.parametrize("width", [360, 1280])
def test_page_fits_its_screen_and_all_has_a_name(page: Page, url: str, width: int) -> None:
    page.size(width, 800)
    opened(page, url)
    root = "document.documentElement"
    assert page.run(f"{root}.scrollWidth - {root}.clientWidth") == 0
    assert page.run(NAMELESS) == []


def test_page_is_light_or_dark_as_the_reader_prefers(page: Page, url: str) -> None:
    shown = []
    for is_dark in (False, True):
        page.size(1280, 900, is_dark=is_dark)
        opened(page, url)
        shown.append(float(np.median(mpimg.imread(io.BytesIO(page.picture()))[..., :3])))
    light, dark = shown
    assert light > 0.8
    assert dark < 0.3
