"""Documents packed without padding: rates and energy are those of their tokens."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs.tiny_run import run_here, write_run
from waferstream.preparation.preparing import prepare
from waferstream.preparation.recipe import Layout, Recipe
from waferstream.workload.packing import Packing


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of 1 to 16 bytes."""
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    draw = random.Random(0)
    texts = ["x" * draw.randint(1, 16) for _ in range(200)]
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return path


def written(folder: Path, lines: Path, layout: Layout) -> tuple[list[str], Packing]:
    """Write a run on documents in a layout; return its flags, and how full its sequences are."""
    out = folder / "data"
    made = Recipe(
        sources=(str(lines),), output_dir=out, layout=layout, max_sequence_length=16, processes=1
    )
    packing = prepare(made)
    section: dict[str, Any] = {
        "data_processor": "GptHDF5MapDataProcessor",
        "data_dir": str(out),
        "batch_size": 8,
        "use_vsl": layout == "packed",
    }
    return write_run(folder, fit={"train_dataloader": section}), packing


def test_rates_count_tokens_of_documents(
    tmp_path: Path, lines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packed documents lose less than 5 % against sequences without padding or spans."""
    results = {}
    layouts: tuple[Layout, ...] = ("packed", "padded")
    for layout in layouts:
        (tmp_path / layout).mkdir()
        flags, packing = written(tmp_path / layout, lines, layout)
        code, out, _ = run_here([*flags, "--simulate"], capsys)
        assert code == 0
        assert packing.report() in out
        (found,) = (tmp_path / layout).rglob("simulation.json")
        point = json.loads(found.read_text())["points"][0]
        places_per_s = point["emulated"]["samples_per_s"] * 16
        tokens_per_s = point["prediction"]["tokens_per_s"]
        assert tokens_per_s == pytest.approx(places_per_s * packing.share)
        results[layout] = tokens_per_s, places_per_s, point["energy"]["per_million_tokens"]["kwh"]
    packed, _, packed_kwh = results["packed"]
    padded, without_spans, padded_kwh = results["padded"]
    assert packed >= 0.95 * without_spans
    assert padded_kwh / packed_kwh == pytest.approx(packed / padded, rel=0.05)


def test_run_says_what_padding_would_have_cost(
    tmp_path: Path, lines: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags, packing = written(tmp_path, lines, "packed")
    code, out, _ = run_here([*flags, "--mode=train", "--max_steps=2"], capsys)
    assert code == 0
    assert packing.report() in out
    found = json.loads((tmp_path / "model_dir" / "run_summary.json").read_text())
    assert found["packing"]["num_documents"] == packing.num_documents
    (page,) = (tmp_path / "model_dir").rglob("2*/report.html")
    assert "as many times the time and energy" in page.read_text()
