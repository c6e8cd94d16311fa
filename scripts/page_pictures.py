"""Take the pictures of a service's pages in docs/inference.md, in headless Chromium.

waferstream serve smollm2 --port 8000 &
python -m scripts.page_pictures http://127.0.0.1:8000 --out docs
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.reports.driven_browser import Page, driven_browser

QUESTION = "What is the capital of France? Answer in one sentence."
SCHEMA = """{
  "type": "object",
  "properties": {"city": {"type": "string"}, "country": {"type": "string"}},
  "required": ["city", "country"],
  "additionalProperties": false
}"""

_SEEDED = """const real = window.fetch; window.fetch = (path, given) =>
  real(path, { ...given, body: JSON.stringify({ ...JSON.parse(given.body), seed: 6 }) });"""


def main(words: Sequence[str]) -> int:
    """Write the pictures."""
    parser = argparse.ArgumentParser(prog="python -m scripts.page_pictures")
    parser.add_argument("url", help="address of a service")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the pictures")
    given = parser.parse_args(words)
    with TemporaryDirectory() as folder, driven_browser(Path(folder)) as page:
        (given.out / "service_chat.png").write_bytes(_chat(page, given.url))
        (given.out / "service_playground.png").write_bytes(_playground(page, given.url))
    return 0


def _chat(page: Page, url: str) -> bytes:
    """Return a question with its answer, the way of its tokens and their time."""
    page.size(1000, 820)
    page.open(url)
    page.run(_SEEDED)  # the answer of every picture
    page.type(QUESTION)
    page.press("Enter")
    page.see("document.querySelector('.again')")
    page.click("summary")
    return page.picture()


def _playground(page: Page, url: str) -> bytes:
    """Return a request for JSON of a schema with its answer and code, in the dark."""
    page.size(1280, 940, is_dark=True)
    page.open(f"{url}/playground")
    for name, value in {
        "messages": "Where is the Eiffel Tower?", "seed": "3", "temperature": "0",
        "max_completion_tokens": "60", "response_format": "json_schema", "schema": SCHEMA,
    }.items():  # fmt: skip
        page.choose(f"#{name}", value)
    page.click("#send")
    page.see("document.querySelector('.causes')")
    page.run("scrollTo(0, 0)")
    return page.picture()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
