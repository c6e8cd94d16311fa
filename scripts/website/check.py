"""Check the pages of a built documentation site: links, pictures, and messages of a browser.

    make docs
    python -m scripts.website.check build/site --browser

Every link to a file of the site must exist, and so must the heading that it names. With
`--browser`, Chromium opens every page without a network, so that a page that loads something from
outside is found, too. It takes about two seconds for each page.
Exit codes: 0 all pages are whole, 1 one is not.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_MESSAGE = re.compile(r':CONSOLE[^\]]*\] "(.*)", source: ')


@dataclass(frozen=True)
class SitePage:
    """Links of a page, and the names that links to it can lead to."""

    links: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


class _Reader(HTMLParser):
    """A parser that collects links and names of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.page = SitePage()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for key, value in attrs:
            if value and key in ("href", "src"):
                self.page.links.append(value)
            elif value and (key == "id" or (tag == "a" and key == "name")):
                self.page.names.add(value)


def read_pages(site: Path) -> dict[Path, SitePage]:
    """Return every page of a site by its path."""
    pages = {}
    for path in sorted(site.rglob("*.html")):
        reader = _Reader()
        reader.feed(path.read_text(encoding="utf-8"))
        pages[path] = reader.page
    return pages


def broken_links(pages: Mapping[Path, SitePage]) -> Iterator[tuple[Path, str]]:
    """Yield each link to a file or a heading that the site lacks, with its page."""
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or parts.path.startswith("/"):
                continue
            address, name = urldefrag(link)
            file = unquote(urlsplit(address).path)
            target = (path.parent / file).resolve() if file else path.resolve()
            if target.is_dir():
                target /= "index.html"
            known = pages.get(target)
            if not target.exists() or (name and known and unquote(name) not in known.names):
                yield path, link


def browser_messages(browser: str, path: Path) -> list[str]:
    """Return the messages of a browser without a network about a page."""
    with tempfile.TemporaryDirectory() as profile:
        done = subprocess.run(
            [
                browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                "--allow-file-access-from-files", "--enable-logging=stderr",
                "--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}",
                path.resolve().as_uri(),
            ],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
    return _MESSAGE.findall(done.stderr)


def faults(site: Path, browser: str | None = None) -> Iterator[str]:
    """Yield one line for each fault of a site.

    Args:
        site: The folder of the site.
        browser: The program that opens every page; None to check links alone.
    """
    pages = read_pages(site.resolve())
    for path, link in broken_links(pages):
        yield f"{path.relative_to(site.resolve())}: broken link {link}"
    for path in pages if browser else ():
        for message in browser_messages(str(browser), path):
            yield f"{path.relative_to(site.resolve())}: {message}"


def main() -> int:
    """Check a site and print its faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path, help="folder of the site")
    parser.add_argument("--browser", action="store_true", help="open every page in Chromium")
    given = parser.parse_args()
    if not (given.site / "index.html").is_file():
        parser.error(f"{given.site} must hold index.html; make docs builds build/site")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if given.browser and browser is None:
        parser.error(f"--browser needs one of {', '.join(BROWSERS)}")
    found = list(faults(given.site, browser if given.browser else None))
    print("\n".join([*found, f"{len(found)} faults"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
