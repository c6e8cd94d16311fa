"""The pages of an appliance in a browser: what people see of queue, cluster and jobs, live."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.management.seeded import (
    BREATHING,
    ENDED,
    EVIL,
    RUNNING,
    TOKENS,
    WAITING,
    Seeded,
    seeded,
)
from tests.support.reports.browser import NEEDS_BROWSER
from tests.support.reports.driven_browser import Page, driven_browser
from waferstream.management.model.event import Ended, Progressed
from waferstream.management.model.job import Phase
from waferstream.management.model.operations import Caller, SetNode
from waferstream.management.model.workflow import Progress

pytestmark = NEEDS_BROWSER

PATHS = ("/", "/cluster", f"/jobs/{BREATHING}", "/jobs/none", "/login")

NAMELESS = """[...document.querySelectorAll("input, button, a, meter, svg")]
  .filter((each) => !(each.labels?.length || each.ariaLabel || each.textContent.trim()
    || each.ariaHidden)).map((each) => each.outerHTML)"""


@pytest.fixture(scope="module")
def appliance(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    with seeded(tmp_path_factory.mktemp("appliance")) as found:
        yield found


@pytest.fixture
def page(browser: Page, appliance: Seeded) -> Iterator[Page]:
    """A page on a desk, of which nothing is refused or fails that the test does not expect."""
    browser.size(1280, 900)
    sign_in(browser, appliance, "root")
    browser.troubles.clear()
    yield browser
    assert browser.troubles == []


def sign_in(page: Page, appliance: Seeded, user: str) -> None:
    page.open(f"{appliance.url}/login")
    show(page, TOKENS[user])
    page.see("document.querySelector('.gantt')")


def show(page: Page, token: str) -> None:
    """Sign in with a token, by keys."""
    page.see("document.readyState === 'complete' && document.querySelector('#token')")
    page.run("document.querySelector('#token').focus()")
    page.type(token)
    page.press("Enter")


def test_whoever_has_no_token_signs_in(tmp_path: Path, appliance: Seeded) -> None:
    with driven_browser(tmp_path) as page:
        page.open(f"{appliance.url}/cluster")
        show(page, "wst-wrong")
        page.see("document.querySelector('#fault')?.textContent")
        assert "token" in page.text("#fault")
        show(page, TOKENS["ann"])
        page.see("document.querySelector('.gantt')")
        assert page.run("document.cookie") == ""  # scripts cannot read the token
        page.click(".leave button")
        page.see("document.querySelector('#token')")
        page.open(appliance.url)
        page.see("document.querySelector('#token')")


def test_queue_says_who_waits_for_what_and_when_it_starts(page: Page) -> None:
    waiting = page.text(".queue")
    assert "Expected to start in" in waiting
    assert "MemoryX groups" in waiting
    assert page.run("document.querySelectorAll('.queue li').length") >= 2
    assert ENDED in page.text("[aria-labelledby=ended-title]")
    assert "400 of 1000" in page.text("[aria-labelledby=running-title]")


def test_gantt_shows_a_job_that_shrank(page: Page) -> None:
    """On systems that it has left it has one bar, on those that it kept two and what is left."""
    bars = "[...document.querySelectorAll('.gantt tbody:first-of-type tr')].map((row) => row.querySelectorAll('rect').length)"
    first, *others = page.run(bars)
    assert first == 1  # the job that has ended
    assert others[:3] == [1 + 3] * 3
    assert others[3] == 3
    assert others[6] == 1


def test_job_is_opened_by_keys(page: Page) -> None:
    page.run(f"document.querySelector('#running-{BREATHING}').focus()")
    page.press("Enter")
    page.see("document.querySelector('#curves')")
    assert page.text("h1") == BREATHING
    page.see("document.querySelector('#loss canvas')")


def test_label_is_never_html(page: Page, appliance: Seeded) -> None:
    for path in ("/", f"/jobs/{BREATHING}"):
        page.open(appliance.url + path)
        assert f"note={EVIL}" in page.text("main")
        assert page.run("document.querySelectorAll('main script').length") == 0
        assert page.run("document.title").endswith("WaferStream")


def test_job_shows_where_its_time_goes_and_its_roles(page: Page, appliance: Seeded) -> None:
    page.open(f"{appliance.url}/jobs/{BREATHING}")
    assert "61.0 %" in page.text("[aria-labelledby=causes-title]")
    assert page.run("document.querySelectorAll('.role.system').length") == 4
    assert page.run("document.querySelectorAll('.link').length") == 2 + 4
    assert "91.2 kW" in page.text("#facts")
    assert "placed 2 times" in page.text("#facts")


def test_job_is_followed_live(page: Page, appliance: Seeded) -> None:
    """Points, log and the end appear without a reload; what is printed is text."""
    log = appliance.folders.log(RUNNING)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("x" * 100_000 + "begin\n")
    page.open(f"{appliance.url}/jobs/{RUNNING}")
    page.see("document.querySelector('#log').textContent.endsWith('begin\\n')")
    assert page.run("document.querySelector('#log').textContent.length") < 70_000
    with log.open("a") as file:
        file.write(EVIL)
    page.see(f"document.querySelector('#log').textContent.endsWith({EVIL!r})")
    assert page.run("document.title").startswith(RUNNING)
    progress = Progress(step=40, total_steps=200, loss=2.125, emulated_samples_per_s=1234.0)
    appliance.note(RUNNING, Progressed(progress=progress))
    page.see("document.querySelector('#newest').textContent.includes('2.125')")
    page.see("document.querySelector('#facts').textContent.includes('40 of 200')")
    assert "1,234 samples/s emulated" in page.text("#newest")
    appliance.note(RUNNING, Ended(result=Phase.FAILED, message="the loss is not finite"))
    page.see("document.querySelector('#facts').textContent.includes('the loss is not finite')")
    assert "FAILED" in page.text("#facts-title")


def test_queue_follows_what_happens(page: Page, appliance: Seeded) -> None:
    page.open(appliance.url)
    name = f"{WAITING}-2"
    appliance.note(name, Ended(result=Phase.CANCELLED, message="cancelled by bob"))
    page.see(f"document.querySelector('#ended-{name}')")


def test_job_of_another_user_shows_no_log(browser: Page, appliance: Seeded) -> None:
    sign_in(browser, appliance, "bob")
    browser.open(f"{appliance.url}/jobs/{BREATHING}")
    browser.see("document.querySelector('#fault')?.textContent")
    assert "61.0 %" in browser.text("main")
    assert browser.run("document.querySelector('#log').textContent") == ""


def test_cluster_shows_who_holds_what(page: Page, appliance: Seeded) -> None:
    root = Caller(user="root", role="administrator")
    appliance.manager.do(root, SetNode(name="system-7", state="drained"))
    page.open(f"{appliance.url}/cluster")
    assert "drained" in page.text(".nodes .drained")
    assert BREATHING in page.text(".nodes")
    assert "team" in page.text("[aria-labelledby=sessions-title]")


@pytest.mark.parametrize("path", PATHS)
def test_page_is_for_every_reader(browser: Page, appliance: Seeded, path: str) -> None:
    """It fits a phone, is light or dark as preferred, and names what can be used."""
    sign_in(browser, appliance, "root")
    browser.size(360, 740, is_dark=True)
    browser.open(appliance.url + path)
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    color = "getComputedStyle(document.body).backgroundColor"
    assert browser.run(wide) == 0
    dark = browser.run(color)
    browser.size(1280, 900)
    assert browser.run(wide) == 0
    assert (dark, browser.run(color)) == ("rgb(20, 24, 29)", "rgb(246, 247, 249)")
    assert browser.run(NAMELESS) == []
