"""GPU clusters beside ours."""

import re
from pathlib import Path

import pytest

import modelzoo
from baselines.gpu import KINDS
from waferstream.config.params import Params, load_params
from waferstream.scaling.gpus import ERROR, NO_TOKENS, compare_with_gpus, gpu_counts, workload_of

PARAMS = Path(modelzoo.__file__).parent / "params"
FIDELITY = PARAMS.parents[1] / "docs" / "fidelity.md"


def params_of(name: str) -> Params:
    return load_params(PARAMS / f"{name}.yaml")


def test_every_kind_of_parallelism_on_every_kind_of_gpu() -> None:
    """The whole batch at every point; more memory or more GPUs never train slower."""
    comparison = compare_with_gpus(params_of("gpt3_1.3b"), 1_300_000_000)
    assert [curve.kind for curve in comparison.curves] == [*KINDS, *KINDS]
    for curve in comparison.curves:
        rates = [point.samples_per_s for point in curve.fitting]
        assert rates == sorted(rates)
    assert comparison.note == ERROR


def test_a_way_that_never_fits_is_said_to() -> None:
    """Seventy billion parameters with their optimizer state fit no single GPU."""
    comparison = compare_with_gpus(params_of("llama2_70b"), 69_000_000_000)
    assert not comparison.curves[0].fitting
    assert "Nowhere does the model fit A100-80GB DDP, H100 DDP." in comparison.note


def test_a_workload_is_what_the_params_file_says() -> None:
    """Sequence length is that of the data, the rest that of the model."""
    workload = workload_of(params_of("gpt3_1t"), 1_008_000_000_000)
    assert workload is not None
    assert (workload.hidden, workload.layers, workload.heads) == (25600, 128, 160)
    assert (workload.seq_len, workload.vocab, workload.tied_embeddings) == (2048, 50257, True)


def test_a_model_of_images_has_no_gpu_curves() -> None:
    """And the note says why."""
    comparison = compare_with_gpus(params_of("dit_2b"), 2_000_000_000)
    assert (comparison.curves, comparison.note) == ((), NO_TOKENS)


@pytest.mark.parametrize(("batch", "most"), [(1, 8), (16, 128), (3072, 1024)])
def test_small_batches_are_not_spread_over_idle_gpus(batch: int, most: int) -> None:
    """Powers of two, up to a node of eight for each sample."""
    counts = gpu_counts(batch)
    assert (counts[0], counts[-1]) == (1, most)


def test_the_stated_error_is_that_of_the_fidelity_report() -> None:
    """The note and the report come from the same rows."""
    text = FIDELITY.read_text(encoding="utf-8")
    found = re.search(r"\| GPU training FSDP \| silicon \| validation \| (\d+) \| ([\d.]+ %)", text)
    assert found is not None
    assert f"{found[1]} other published rows" in ERROR
    assert f"{found[2]} mean error" in ERROR
