"""Take the pictures of the appliance's pages in docs/appliance.md, in headless Chromium.

python -m scripts.appliance_pictures --out docs
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.management.seeded import BREATHING, TOKENS, Seeded, seeded
from tests.support.reports.driven_browser import Page, driven_browser


def main(words: Sequence[str]) -> int:
    """Write the pictures, of a management whose jobs are those of the tests."""
    parser = argparse.ArgumentParser(prog="python -m scripts.appliance_pictures")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder of the pictures")
    out = parser.parse_args(words).out
    with (
        TemporaryDirectory() as store,
        TemporaryDirectory() as profile,
        seeded(Path(store), note="seed 7") as appliance,
        driven_browser(Path(profile)) as page,
    ):
        (out / "appliance_queue.png").write_bytes(_queue(page, appliance))
        (out / "appliance_job.png").write_bytes(_job(page, appliance))
    return 0


def _queue(page: Page, appliance: Seeded) -> bytes:
    """Return the queue, below the chart of systems."""
    page.size(1100, 1010)
    page.open(f"{appliance.url}/login")
    page.see("document.querySelector('#token')")
    page.run("document.querySelector('#token').focus()")
    page.type(TOKENS["root"])
    page.press("Enter")
    page.see("document.querySelector('.gantt')")
    return page.picture()


def _job(page: Page, appliance: Seeded) -> bytes:
    """Return the page of a job that breathes, in the dark."""
    page.size(1100, 1180, is_dark=True)
    page.open(f"{appliance.url}/jobs/{BREATHING}")
    page.see("document.querySelector('#newest').textContent.includes('Step 400')")
    return page.picture()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
