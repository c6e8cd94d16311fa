"""Bytes on one GPU in training."""

import pytest

from waferstream.baselines.gpu import (
    A100_40,
    A100_80,
    AUTOCAST_DDP,
    FSDP,
    H200,
    GpuMemory,
    Parallelism,
    Recompute,
    Sharding,
    Workload,
    training_memory,
)

LLAMA_8B = Workload(8_030_000_000, 4096, 32, 32, 8192, 128_256)


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


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_activations_kept_for_the_backward_pass(recompute: Recompute) -> None:
    """Of three sequences of 8,192: layers, or their inputs and one layer at a time, and logits."""
    tokens = 3 * 8192
    layer, boundary = 34 * 4096 * tokens, 2 * 4096 * tokens
    kept = {
        "none": 32 * layer,
        "selective": 16 * layer,
        "full": 32 * boundary + layer,
    }[recompute]
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
