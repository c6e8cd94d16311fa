"""Pages for people: they are public, load nothing from elsewhere, and write texts as texts alone."""

from __future__ import annotations

import re
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.support.runs.served_folder import LOCAL
from waferstream.machine.regions.token_time import TokenTime
from waferstream.reports import style
from waferstream.reports.service.plan_picture import CAUSE_COLORS
from waferstream.serving.accounts.accounts import Accounts
from waferstream.serving.accounts.prices import Price
from waferstream.serving.answers import Answers
from waferstream.serving.http import pages
from waferstream.serving.http.app import make_app

FOLDER = Path(pages.__file__).parent.parent / "pages"
SCRIPTS = sorted(FOLDER.glob("*.js"))


class Sources(HTMLParser):
    """The addresses that a page loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in {"script", "link", "img", "iframe", "object"}:
            self.found += [str(given[name]) for name in ("src", "href") if name in given]


@pytest.mark.parametrize("path", pages.PAGES)
def test_page_consists_of_files_of_the_service(client: TestClient, path: str) -> None:
    page = client.get(path)
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    sources = Sources(page.text).found
    assert len(sources) == 4
    for source in sources:
        assert source.startswith("/pages/")
        assert client.get(source).status_code == 200


def test_files_are_asked_for_once(client: TestClient) -> None:
    first = client.get("/pages/chat.js")
    again = client.get("/pages/chat.js", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304


@pytest.mark.parametrize(
    "name", ["nothing.js", "base.html.jinja", "__init__.py", "..%2fhttp%2fapp.py", "page.py"]
)
def test_other_files_are_not_told(client: TestClient, name: str) -> None:
    assert client.get(f"/pages/{name}").status_code == 404


def test_pages_need_no_key_but_their_requests_do(answers: Answers, tmp_path: Path) -> None:
    price = Price(input=Decimal("0.35"), output=Decimal("0.75"))
    accounts = Accounts(tmp_path / "accounts.db", price)
    with accounts, TestClient(make_app(answers, tmp_path, accounts), base_url=LOCAL) as client:
        for path in (*pages.PAGES, "/pages/site.css"):
            assert client.get(path).status_code == 200
        assert "$0.35 per million" in client.get("/account").text
        assert client.get("/v1/limits").status_code == 401
        assert client.get("/pages").status_code == 401


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_write_no_html_and_name_no_other_place(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
    assert set(re.findall(r"https?://[\w./]*", text)) <= {"http://www.w3.org/2000/svg"}
    for name in re.findall(r'from "\./([\w.]+)"', text):
        assert (FOLDER / name).is_file()


def test_every_cause_of_time_has_a_name_and_the_colour_of_pictures() -> None:
    sheet = (FOLDER / "site.css").read_text(encoding="utf-8")
    names = (FOLDER / "machine.js").read_text(encoding="utf-8")
    for cause in TokenTime().by_cause:
        (color,) = re.findall(rf"\.cause\.{cause} {{ fill: var\(--(\w+)\)", sheet)
        assert getattr(style, color.upper()) == CAUSE_COLORS[cause]
        assert f"\n  {cause}: " in names


def test_name_of_a_model_is_no_html(answers: Answers, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(answers, "model", _Named("</script><b>x"))
    with TestClient(make_app(answers, tmp_path), base_url=LOCAL) as client:
        assert "<b>x" not in client.get("/").text


class _Named:
    def __init__(self, name: str) -> None:
        self.name = name
        self.weights = Path(__file__)
