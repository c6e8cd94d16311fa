"""The picture of batches."""

from __future__ import annotations

from pathlib import Path

from waferstream.machine.regions.batch_time import BatchTime
from waferstream.machine.regions.published import DECODERS
from waferstream.machine.regions.service import Service
from waferstream.reports.service.batch_picture import batch_picture


def test_both_ways_and_their_crossover_are_drawn(tmp_path: Path) -> None:
    time = BatchTime(Service(DECODERS["llama-3-8b"], 8192), 500, 200)
    batch_picture(tmp_path / "batch.svg", "llama-3-8b", time, 1000)
    assert "<svg" in (tmp_path / "batch.svg").read_text(encoding="utf-8")
