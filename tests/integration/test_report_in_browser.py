"""The page of a run in a browser: light and dark, on a phone and on a desk, printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.reports.browser import MARKS, brightness_by_scheme, browse
from tests.support.runs.tiny_run import write_run
from waferstream.cli.main import main

PROBE = """<script>addEventListener("load", () => {
  const page = document.documentElement;
  const wide = [...document.querySelectorAll("main > *")].filter(
    (one) => one.getBoundingClientRect().right > page.clientWidth + 1);
  const empty = [...document.querySelectorAll("svg")].filter(
    (one) => one.getBoundingClientRect().height < 40);
  document.title = `scroll ${page.scrollWidth - page.clientWidth} wide ${wide.length} `
    + `empty ${empty.length} drawings ${document.querySelectorAll("svg").length}`;
})</script>"""

pytestmark = MARKS


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    loop = {"max_steps": 4, "eval_frequency": 2, "eval_steps": 1}
    assert main(write_run(folder, init__loop=loop), home=folder) == 0
    (page,) = (folder / "model_dir").glob("*/report.html")
    return page


@pytest.mark.parametrize("width", [500, 1280])
def test_report_fits_the_width_and_draws_everything(
    report: Path, tmp_path: Path, width: int
) -> None:
    """Tables scroll inside their card; 500 pixels are the least of a window without a screen."""
    probed = tmp_path / "probed.html"
    probed.write_text(report.read_text(encoding="utf-8") + PROBE, encoding="utf-8")
    shown = browse(tmp_path, f"--window-size={width},900", "--dump-dom", probed.as_uri())
    assert "<title>scroll 0 wide 0 empty 0 drawings 7</title>" in shown


def test_report_is_light_or_dark_as_the_reader_prefers(report: Path, tmp_path: Path) -> None:
    light, dark = brightness_by_scheme(tmp_path, report.as_uri())
    assert light > 0.9
    assert dark < 0.2


def test_report_is_printed(report: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    browse(tmp_path, f"--print-to-pdf={paper}", report.as_uri())
    assert paper.read_bytes().startswith(b"%PDF")
