"""The animation of a kernel in a browser: it plays, and shows what the simulator did."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.reports.browser import MARKS, brightness_by_scheme, browse
from tests.support.runs.tiny_run import write_run
from waferstream.cli.main import main

PROBE = """<script>addEventListener("load", () => {
  const page = document.documentElement;
  const shown = () => [...document.querySelectorAll("#grid rect")].map(
    (one) => one.getAttribute("class").split(" ")[1]).join("");
  const before = shown();
  let wavelets = 0, busy = 0;
  const slider = document.getElementById("slider");
  for (let cycle = 0; cycle <= Number(slider.max); cycle++) {
    slider.value = cycle;
    slider.dispatchEvent(new Event("input"));
    wavelets += document.querySelectorAll("#grid .moving path").length;
    busy += document.querySelectorAll("#grid rect:not(.s0)").length;
  }
  document.getElementById("back").click();
  document.querySelector("#grid rect").dispatchEvent(new MouseEvent("click"));
  document.title = `scroll ${page.scrollWidth - page.clientWidth} pes ${before.length / 2} `
    + `wavelets ${wavelets} busy ${busy > 0} ${document.getElementById("cycle").textContent} `
    + document.getElementById("detail").textContent.split(":")[0];
})</script>"""

pytestmark = MARKS


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    assert main([*write_run(folder), "--wafer_trace=decoder.0@3x4"], home=folder) == 0
    (found,) = (folder / "model_dir" / "wafer_trace").glob("*.html")
    return found


@pytest.mark.parametrize("width", [500, 1280])
def test_every_cycle_can_be_shown(page: Path, tmp_path: Path, width: int) -> None:
    """Each hop takes a cycle of a WSE-2, so each is drawn in one."""
    text = page.read_text(encoding="utf-8")
    probed = tmp_path / "probed.html"
    probed.write_text(text + PROBE, encoding="utf-8")
    shown = browse(tmp_path, f"--window-size={width},900", "--dump-dom", probed.as_uri())
    hops, cycles = (
        text.split(f"<p>{name}</p><strong>")[1].split()[0] for name in ("Wavelets", "Counted")
    )
    number = int(hops.replace(",", ""))
    last = int(cycles.replace(",", "")) - 2
    expected = f"scroll 0 pes 16 wavelets {number} busy true cycle {last} of {last + 2} "
    assert f"<title>{expected}PE in row 0, column 0</title>" in shown


def test_animation_is_light_or_dark_as_the_reader_prefers(page: Path, tmp_path: Path) -> None:
    light, dark = brightness_by_scheme(tmp_path, page.as_uri())
    assert light > 0.9
    assert dark < 0.2
