"""A browser for the tests of a file, and a page that nothing may fail on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.reports.driven_browser import Page, driven_browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with driven_browser(tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture
def page(browser: Page) -> Iterator[Page]:
    """A page on a desk, of which nothing is refused or fails that the test does not expect."""
    browser.size(1280, 900)
    browser.troubles.clear()
    yield browser
    assert browser.troubles == []
