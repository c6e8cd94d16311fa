"""GPU clusters to compare a curve with."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import modelzoo
from tests.support.timing.reference_rows import published_rows
from validation.families.gpu import FAMILIES
from validation.families.gpu_runs import gpu_run
from waferstream.baselines.gpu import KINDS
from waferstream.config.params import Params
from waferstream.config.phases import load_params
from waferstream.machine.hardware import PowerSpec
from waferstream.scaling.gpus import (
    ACCURACY_NOTE,
    NO_TOKENS_NOTE,
    SMALLEST_MODEL,
    compare_with_gpus,
    gpu_counts,
    too_small_note,
    workload_of,
)

PARAMS = Path(modelzoo.__file__).parent / "params"
SITE = PowerSpec()
FIDELITY = PARAMS.parents[1] / "docs" / "fidelity.md"


def params_of(name: str) -> Params:
    return load_params(PARAMS / f"{name}.yaml")


def test_compare_with_gpus_covers_every_strategy_and_gpu() -> None:
    """More GPUs never train slower; a GPU without a sample has no point."""
    comparison = compare_with_gpus(params_of("gpt3_1.3b"), 1_300_000_000, SITE)
    assert [curve.kind for curve in comparison.curves] == [*KINDS] * 3
    for curve in comparison.curves:
        rates = [point.samples_per_s for point in curve.fitting]
        assert rates == sorted(rates)
        most = 528 if curve.kind != "tensor+pipeline" else 1024
        assert max(point.gpus for point in curve.points) <= most
        footprints = [one for one in curve.per_million_tokens if one is not None]
        assert len(footprints) == len(rates)
        assert footprints[-1].kwh > footprints[0].kwh
    assert comparison.note == ACCURACY_NOTE


def test_compare_with_gpus_in_weak_scaling_gives_every_gpu_a_batch() -> None:
    params = params_of("gpt3_1.3b")
    weak = compare_with_gpus(params, 1_300_000_000, SITE, weak=True)
    assert max(point.gpus for point in weak.curves[0].points) == 1024
    (one, *_), (total, *_) = (
        curves.curves[0].fitting
        for curves in (weak, compare_with_gpus(params, 1_300_000_000, SITE))
    )
    assert one.samples_per_s == total.samples_per_s


def test_compare_with_gpus_names_strategies_that_never_fit() -> None:
    """Seventy billion parameters with their optimizer state fit no single GPU."""
    comparison = compare_with_gpus(params_of("llama2_70b"), 69_000_000_000, SITE)
    assert not comparison.curves[0].fitting
    assert comparison.note != ACCURACY_NOTE
    assert "A100-80GB DDP, H100 DDP" in comparison.note


def test_compare_with_gpus_refuses_a_model_below_published_runs() -> None:
    """The model of params.yaml would be limited by software that is not modelled."""
    params = load_params(PARAMS.parents[1] / "params.yaml")
    comparison = compare_with_gpus(params, 3_300_000, SITE)
    assert (comparison.curves, comparison.note) == ((), too_small_note(3_300_000))
    assert "124" in comparison.note
    assert compare_with_gpus(params_of("gpt3_1.3b"), SMALLEST_MODEL, SITE).note == ACCURACY_NOTE


def test_smallest_model_is_that_of_the_published_runs() -> None:
    rows = published_rows("GPU training FSDP", FAMILIES, use="validation")
    assert min(gpu_run(row.described()).workload.parameters for row in rows) == SMALLEST_MODEL


def test_workload_of_reads_the_params_file() -> None:
    """Sequence length comes from the data, the rest from the model."""
    workload = workload_of(params_of("gpt3_1t"), 1_008_000_000_000)
    assert workload is not None
    assert (workload.hidden, workload.layers, workload.heads) == (25600, 128, 160)
    assert (workload.seq_len, workload.vocab, workload.tied_embeddings) == (2048, 50257, True)


def test_compare_with_gpus_skips_a_model_without_tokens() -> None:
    comparison = compare_with_gpus(params_of("dit_2b"), 2_000_000_000, SITE)
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
