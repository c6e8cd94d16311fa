"""Scaling curves of GPU clusters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.baselines.gpu.chips import A100_40, A100_80, H200
from waferstream.baselines.gpu.clusters import DGX_A100, DGX_H100
from waferstream.baselines.gpu.curve import CurvePolicy, GpuMemory, Kind, gpu_curve, training_memory
from waferstream.baselines.gpu.software import AUTOCAST_DDP, FSDP
from waferstream.baselines.gpu.workload import Parallelism, Recompute, Sharding, Workload
from waferstream.core.errors import ConfigError

GPT_1B = Workload(1_315_950_592, 2048, 24, 16, 2048, 50_368, tied_embeddings=True)
LLAMA_70B = Workload(68_976_648_192, 8192, 80, 64, 4096, 32_000)
GPT_1T = Workload(1_008_000_000_000, 25_600, 128, 160, 2048, 51_200)

LLAMA_8B = Workload(8_030_000_000, 4096, 32, 32, 8192, 128_256)


def test_small_model_needs_no_model_parallelism() -> None:
    """On one GPU there is nothing to split."""
    (point,) = gpu_curve(GPT_1B, DGX_H100, CurvePolicy(samples_per_gpu=8), [1])
    assert point.fits
    assert point.parallelism is not None
    assert (point.parallelism.sharding, point.parallelism.model_parallel) == ("ddp", 1)
    assert point.tokens_per_s == pytest.approx(point.samples_per_s * 2048)


def test_trillion_parameters_fit_when_split_over_enough_gpus() -> None:
    """The states alone, 16 bytes per parameter, fill 200 H100."""
    few, many = gpu_curve(GPT_1T, DGX_H100, CurvePolicy(global_batch=1536), [64, 1024])
    assert not few.fits
    assert few.tokens_per_s == 0
    assert few.memory.total_bytes > 80e9
    assert many.parallelism is not None
    assert many.parallelism.tensor == 8
    assert many.parallelism.pipeline > 1
    assert 0.3 < many.utilisation < 0.6


def test_gpu_curve_tries_only_the_requested_kinds() -> None:
    """A curve of one kind has points where that kind does not fit."""
    policy = CurvePolicy(samples_per_gpu=1, kinds=("ddp",))
    assert not any(point.fits for point in gpu_curve(LLAMA_70B, DGX_H100, policy, [8, 512]))
    policy = CurvePolicy(samples_per_gpu=1, kinds=("zero3",))
    (point,) = gpu_curve(LLAMA_70B, DGX_H100, policy, [512])
    assert point.parallelism is not None
    assert point.parallelism.sharding == "zero3"


def test_micro_batches_have_any_size_and_cover_the_batch() -> None:
    """As few as fit, of nearly equal size; they cover the share of the busiest rank."""

    def micro_batches(policy: CurvePolicy, counts: list[int]) -> list[tuple[int, int]]:
        ways = [point.parallelism for point in gpu_curve(GPT_1B, DGX_A100, policy, counts)]
        return [(way.micro_batch, way.micro_batches) for way in ways if way]

    batch = CurvePolicy(global_batch=20, kinds=("ddp",))
    assert micro_batches(batch, [1, 3, 8, 20]) == [(10, 2), (7, 1), (3, 1), (1, 1)]
    each = CurvePolicy(samples_per_gpu=7, kinds=("zero3",))
    assert micro_batches(each, [8, 16]) == [(7, 1), (7, 1)]
    small = CurvePolicy(samples_per_gpu=7, kinds=("zero3",), largest_micro_batch=3)
    assert micro_batches(small, [8]) == [(3, 3)]


def test_large_model_is_split_no_further_than_necessary() -> None:
    """16 GPUs need two stages and recompute; 32 hold the optimizer's state between them."""
    policy = CurvePolicy(global_batch=64, kinds=("tensor+pipeline",))
    ways = [point.parallelism for point in gpu_curve(LLAMA_70B, DGX_H100, policy, [8, 16, 32])]
    assert ways == [
        None,
        Parallelism("zero1", 8, 2, 1, 64, recompute="needed", overlap_tensor=True),
        Parallelism("zero1", 8, 1, 1, 16, overlap_tensor=True),
    ]


def test_gpu_curve_ends_where_a_gpu_has_no_sample() -> None:
    """Eight GPUs that share a copy need one sequence together."""
    counts = [8, 16, 32, 64, 128, 256]

    def last(kind: Kind) -> int:
        policy = CurvePolicy(global_batch=16, kinds=(kind,))
        points = gpu_curve(GPT_1B, DGX_A100, policy, counts)
        assert [point.gpus for point in points] == counts[: len(points)]
        return points[-1].gpus

    assert last("ddp") == last("zero3") == 16
    assert last("tensor+pipeline") == 256
    (point,) = gpu_curve(GPT_1B, DGX_A100, CurvePolicy(global_batch=2), [256])
    assert point.parallelism is not None
    assert point.parallelism.data_parallel(256) <= 2


def test_gpu_curve_is_never_faster_than_its_launches() -> None:
    """Of 24 layers: 40 kernels each of 7 us, or with a compiler 21 of 8.2 us."""
    tiny = replace(GPT_1B, seq_len=16, layer_ops=40)
    for compiled, least_s in ((False, 40 * 24 * 7.0e-6), (True, 21 * 24 * 8.2e-6)):
        policy = CurvePolicy(global_batch=1, compiled=compiled)
        (point,) = gpu_curve(tiny, DGX_H100, policy, [1])
        assert point.step is not None
        assert point.step.total_s >= least_s * (1 - 1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 600), st.integers(1, 64))
def test_every_count_and_batch_has_a_bounded_utilisation(gpus: int, batch: int) -> None:
    """Odd counts and indivisible batches as well; a count has no point if a GPU has no sample."""
    points = gpu_curve(GPT_1B, DGX_H100, CurvePolicy(global_batch=batch), [gpus])
    assert points or gpus > batch
    for point in points:
        assert point.fits
        assert 0 < point.utilisation < 0.7


def test_gpu_curve_has_a_point_for_every_count() -> None:
    """As many as the curve of the wafers has."""
    points = gpu_curve(LLAMA_70B, DGX_H100, CurvePolicy(samples_per_gpu=4), range(1, 193))
    assert [point.gpus for point in points] == list(range(1, 193))


@pytest.mark.parametrize(
    "settings_",
    [
        {},
        {"global_batch": 8, "samples_per_gpu": 1},
        {"global_batch": 0},
        {"samples_per_gpu": 1, "largest_micro_batch": 0},
        {"samples_per_gpu": 1, "kinds": ()},
    ],
)
def test_curve_policy_without_one_batch_is_refused(settings_: dict[str, Any]) -> None:
    """One of the two batches, positive, and at least one kind."""
    with raises(ConfigError, "curve-policy-incomplete"):
        CurvePolicy(**settings_)


def test_gpu_count_of_zero_is_refused() -> None:
    """Counts start at 1."""
    with raises(ConfigError, "gpu-count-not-positive"):
        gpu_curve(GPT_1B, DGX_H100, CurvePolicy(samples_per_gpu=1), [8, 0])


def states(sharding: Sharding, gpus: int = 8) -> tuple[float, float, float]:
    memory = training_memory(LLAMA_8B, Parallelism(sharding), gpus, FSDP)
    return memory.weights_bytes, memory.gradients_bytes, memory.optimizer_bytes


def test_each_zero_stage_divides_one_more_part() -> None:
    """16 bytes per parameter in all: 2 of weight, 2 of gradient, 12 of optimizer."""
    parameters = LLAMA_8B.parameters
    assert states("ddp") == (2 * parameters, 2 * parameters, 12 * parameters)
    assert states("zero1") == (2 * parameters, 2 * parameters, 1.5 * parameters)
    assert states("zero2") == (2 * parameters, 0.25 * parameters, 1.5 * parameters)
    gathered = 4 * LLAMA_8B.layer_parameters
    weights, gradients, optimizer = states("zero3")
    assert weights == pytest.approx(0.25 * parameters + gathered)
    assert (gradients, optimizer) == (0.25 * parameters, 1.5 * parameters)


def test_model_parallelism_and_recomputation_save_memory() -> None:
    """Eight GPUs share one copy; a layer's input is a fraction of what a layer keeps."""
    whole = training_memory(LLAMA_8B, Parallelism("ddp"), 8, FSDP)
    split = training_memory(LLAMA_8B, Parallelism("ddp", tensor=8), 8, FSDP)
    assert split.optimizer_bytes == whole.optimizer_bytes / 8
    assert split.activations_bytes == whole.activations_bytes / 8
    saved = training_memory(LLAMA_8B, Parallelism("ddp", recompute="full"), 8, FSDP)
    assert saved.activations_bytes < whole.activations_bytes / 4


@pytest.mark.parametrize("recompute", ["none", "selective", "needed", "full"])
def test_activations_kept_for_the_backward_pass(recompute: Recompute) -> None:
    """Of three sequences of 8,192: layers, or their inputs and one layer at a time, and logits."""
    tokens = 3 * 8192
    layer, boundary = 34 * 4096 * tokens, 2 * 4096 * tokens
    kept = {"none": 32 * layer, "selective": 16 * layer}.get(recompute, 32 * boundary + layer)
    split = Parallelism("ddp", micro_batch=3, recompute=recompute)
    memory = training_memory(LLAMA_8B, split, 1, FSDP)
    assert memory.activations_bytes == kept + 6 * 128_256 * tokens


def test_pipeline_keeps_the_micro_batches_in_flight() -> None:
    """A quarter of the layers, four times: 1F1B does not save activations on the first stage."""
    whole = training_memory(LLAMA_8B, Parallelism("zero1"), 8, FSDP)
    stages = training_memory(LLAMA_8B, Parallelism("zero1", pipeline=4, micro_batches=8), 8, FSDP)
    assert stages.activations_bytes == pytest.approx(whole.activations_bytes)
    assert stages.weights_bytes == whole.weights_bytes / 4


def test_unfused_attention_keeps_its_scores() -> None:
    """They grow with the square of the sequence."""
    fused, unfused = (
        training_memory(LLAMA_8B, Parallelism("ddp"), 1, software).activations_bytes
        for software in (FSDP, AUTOCAST_DDP)
    )
    assert unfused - fused == pytest.approx(6 * LLAMA_8B.scores_per_sequence)


def test_fits_up_to_the_usable_share() -> None:
    """To the byte."""
    half = A100_80.model_copy(update={"hbm_bytes": 1000, "usable_share": 0.5})
    assert GpuMemory(100, 100, 100, 200).fits(half)
    assert not GpuMemory(100, 100, 100, 201).fits(half)


def test_fits_depends_on_the_gpu() -> None:
    """Llama 8B with ZeRO-3 on 16 GPUs and a sequence of 8,192: not in 40 GB, well in 141 GB."""
    memory = training_memory(LLAMA_8B, Parallelism("zero3"), 16, FSDP)
    assert [memory.fits(gpu) for gpu in (A100_40, A100_80, H200)] == [False, True, True]
