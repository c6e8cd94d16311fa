"""GPU clusters to compare a curve with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.timing.reference_rows import published_rows
from validation.families.gpu import FAMILIES
from validation.families.gpu_runs import gpu_run
from waferstream.baselines.gpu.curve import KINDS, Kind
from waferstream.baselines.gpu.workload import Workload
from waferstream.machine.hardware import PowerSpec
from waferstream.scaling.gpus import (
    ACCURACY_NOTE,
    NO_TOKENS_NOTE,
    PUBLISHED,
    compare_with_gpus,
    extrapolation,
    gpu_counts,
)

SITE = PowerSpec()
FIDELITY = Path(__file__).parents[4] / "docs" / "fidelity.md"
GPT_1B = Workload(
    1_315_723_264, 2048, 24, 16, 2048, 50_257, tied_embeddings=True, learned_positions=True
)
LLAMA_70B = Workload(68_976_648_192, 8192, 80, 64, 4096, 32_000)


def test_compare_with_gpus_covers_every_strategy_and_gpu() -> None:
    """Up to 128 GPUs more are faster; a GPU without a sample has no point."""
    comparison = compare_with_gpus(GPT_1B, 512, SITE)
    assert [curve.kind for curve in comparison.curves] == [*KINDS] * 3
    for curve in comparison.curves:
        rates = [point.samples_per_s for point in curve.fitting]
        assert rates[:8] == sorted(rates[:8])
        most = 512 if curve.kind != "tensor+pipeline" else 1024
        assert max(point.gpus for point in curve.points) <= most
        footprints = [one for one in curve.per_million_tokens if one is not None]
        assert len(footprints) == len(rates)
        assert footprints[-1].kwh > footprints[0].kwh
    assert comparison.note == ACCURACY_NOTE


def test_compare_with_gpus_in_weak_scaling_gives_every_gpu_a_batch() -> None:
    weak = compare_with_gpus(GPT_1B, 528, SITE, weak=True)
    assert max(point.gpus for point in weak.curves[0].points) == 1024
    (one, *_), (total, *_) = (
        curves.curves[0].fitting for curves in (weak, compare_with_gpus(GPT_1B, 528, SITE))
    )
    assert one.samples_per_s == total.samples_per_s


def test_compare_with_gpus_names_strategies_that_never_fit() -> None:
    """Seventy billion parameters with their optimizer state fit no single GPU."""
    comparison = compare_with_gpus(LLAMA_70B, 1024, SITE)
    assert not comparison.curves[0].fitting
    assert comparison.note != ACCURACY_NOTE
    assert "A100-80GB DDP, H100 DDP" in comparison.note


def test_compare_with_gpus_takes_named_gpus_and_compilers() -> None:
    """A compiler makes one GPU faster; H200 are compared where they are asked for."""
    eager, compiled = (
        compare_with_gpus(GPT_1B, 64, SITE, ["H200"], compiled=compiled)
        for compiled in (False, True)
    )
    assert {curve.gpu for curve in eager.curves} == {"H200"}
    slow, fast = (one.curves[0].points[0].samples_per_s for one in (eager, compiled))
    assert slow < fast


@pytest.mark.parametrize(
    ("kind", "parameters", "gpus", "is_extrapolated"),
    [
        ("ddp", 1e9, 8, True),
        ("zero3", 1e9, 8, False),
        ("zero3", 1e9, 512, True),
        ("zero3", 1e6, 8, True),
        ("tensor+pipeline", 7e10, 1024, False),
    ],
)
def test_points_beyond_published_runs_are_extrapolated(
    kind: Kind, parameters: float, gpus: int, is_extrapolated: bool
) -> None:
    """By the strategy, the parameters and the count of GPUs."""
    assert bool(extrapolation(kind, int(parameters), gpus)) is is_extrapolated


def test_smallest_model_is_that_of_the_published_runs() -> None:
    rows = published_rows("GPU training FSDP", FAMILIES, use="validation")
    smallest = min(gpu_run(row.described()).workload.parameters for row in rows)
    assert smallest == PUBLISHED["zero3"].least_parameters


def test_compare_with_gpus_skips_a_model_without_a_workload() -> None:
    comparison = compare_with_gpus(None, 8, SITE)
    assert (comparison.curves, comparison.note) == ((), NO_TOKENS_NOTE)


@pytest.mark.parametrize(("batch", "most"), [(1, 8), (16, 128), (3072, 1024)])
def test_gpu_counts_end_at_a_node_for_each_sample(batch: int, most: int) -> None:
    counts = gpu_counts(batch)
    assert (counts[0], counts[-1]) == (1, most)


def test_accuracy_note_equals_the_fidelity_report() -> None:
    text = FIDELITY.read_text(encoding="utf-8")
    found = re.search(r"\| GPU training FSDP \| silicon \| validation \| (\d+) \| ([\d.]+ %)", text)
    assert found is not None
    assert f"{found[1]} other published rows" in ACCURACY_NOTE
    assert f"{found[2]} mean error" in ACCURACY_NOTE
