"""Unit tests of wsc.telemetry.simulation_picture."""

from pathlib import Path

import pytest
from PIL import Image

from wsc.telemetry.pictures import CAUSE_COLORS
from wsc.telemetry.simulation_picture import SimulatedPace, simulation_picture
from wsc.timing.attribution import Attribution


def shows(path: Path, color: str) -> bool:
    """Whether a PNG has pixels of just this color."""
    wanted = tuple(bytes.fromhex(color.removeprefix("#")))
    with Image.open(path) as image:
        colors = image.convert("RGB").getcolors(1 << 24)
    return colors is not None and any(found == wanted for _, found in colors)


@pytest.mark.parametrize("counts", [(4,), (1, 2, 4), tuple(range(1, 65))])
def test_pace_and_causes_are_drawn(tmp_path: Path, counts: tuple[int, ...]) -> None:
    """One number of systems, a few, or many; a cause that takes no time is not there."""
    path = tmp_path / "simulation.png"
    causes = Attribution(compute=600, weights=300, reduce=100)
    simulation_picture(path, "made up", [SimulatedPace(n, 2.0 * n, causes) for n in counts])
    for cause in ("compute", "weights", "reduce"):
        assert shows(path, CAUSE_COLORS[cause])
    assert not shows(path, CAUSE_COLORS["input"])
