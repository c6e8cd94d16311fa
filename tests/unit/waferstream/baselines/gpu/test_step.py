"""A training step on GPUs: its parts, its limits, and the cost of each parallelism."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.errors import raises
from waferstream.baselines.gpu.clusters import DGX_A100, DGX_H100
from waferstream.baselines.gpu.communication import Group, data_traffic, tensor_traffic_s
from waferstream.baselines.gpu.curve import training_memory
from waferstream.baselines.gpu.hardware import GpuClusterSpec
from waferstream.baselines.gpu.software import (
    AUTOCAST_DDP,
    DEEPSPEED,
    FSDP,
    MEGATRON,
    TORCHTITAN,
    TORCHTITAN_EAGER,
    SoftwareSpec,
)
from waferstream.baselines.gpu.step import head_s, layer_s, model_flops_utilisation, step_time
from waferstream.baselines.gpu.workload import Parallelism, Recompute, Sharding, Workload
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware.sourced import override

MPT_7B = Workload(
    6_658_859_008, 4096, 32, 32, 2048, 50_368, tied_embeddings=True, learned_positions=True
)
GPT_18B = Workload(18_400_000_000, 6144, 40, 48, 2048, 51_200)


def slow_host(launch_s: float) -> GpuClusterSpec:
    """Return a cluster whose hosts take so long to launch a kernel."""
    host = override(DGX_A100.host, launch_s=launch_s)
    return DGX_A100.model_copy(update={"host": host})


def seconds(
    workload: Workload,
    parallelism: Parallelism,
    gpus: int,
    cluster: GpuClusterSpec = DGX_A100,
    software: SoftwareSpec = FSDP,
) -> float:
    return step_time(workload, parallelism, gpus, cluster, software).total_s


def test_step_time_meets_a_published_run() -> None:
    """G0096: MPT 7B on eight A100-80GB trains on 37,130 tokens per second."""
    step = step_time(MPT_7B, Parallelism(micro_batch=6, micro_batches=2), 8, DGX_A100, FSDP)
    assert step.tokens_per_s == pytest.approx(37_130, rel=0.05)
    assert step.tokens == 96 * 2048
    utilisation = model_flops_utilisation(MPT_7B, step.tokens_per_s, 8, DGX_A100)
    assert utilisation == pytest.approx(0.6423, rel=0.05)


def test_step_time_parts_add_up_to_the_total() -> None:
    """No time is missing from the attribution."""
    step = step_time(GPT_18B, Parallelism("zero1", 8, 4, 1, 16), 64, DGX_H100, MEGATRON)
    busy = (step.compute_s, step.tensor_s, step.data_s, step.bubble_s, step.optimizer_s)
    parts = (*busy, step.launch_s)
    assert step.total_s == pytest.approx(sum(parts))
    assert min(parts) >= 0


def test_bubble_of_a_full_pipeline() -> None:
    """Of m + p - 1 slots p - 1 are idle; twice as many parts per stage halve them."""
    plain = Parallelism("zero1", tensor=8, pipeline=4, micro_batches=12)
    step = step_time(GPT_18B, plain, 32, DGX_H100, MEGATRON)
    busy = step.compute_s + step.tensor_s
    assert step.bubble_s / (busy + step.bubble_s) == pytest.approx(3 / 15)
    interleaved = step_time(GPT_18B, replace(plain, virtual_stages=2), 32, DGX_H100, MEGATRON)
    assert interleaved.bubble_s == pytest.approx(step.bubble_s / 2)


@pytest.mark.parametrize("sharding", ["zero1", "zero2"])
@pytest.mark.parametrize("share", [0, 0.5, 1])
@pytest.mark.parametrize("nics", [2e8, 2e9, 2e11])
def test_communication_that_compute_does_not_hide_is_exposed(
    sharding: Sharding, share: float, nics: float
) -> None:
    """At least the exposed share, and all communication that takes longer than compute."""
    network = DGX_A100.network.model_copy(update={"nic_bandwidth_bytes_per_s": nics})
    cluster = DGX_A100.model_copy(update={"network": network})
    software = FSDP.model_copy(update={"exposed_share": share})
    split = Parallelism(sharding, micro_batches=3)
    step = step_time(MPT_7B, split, 16, cluster, software)
    sent = data_traffic(MPT_7B, split, Group(16, cluster), software)
    busy_s = 32 * layer_s(MPT_7B, split, cluster.gpu, software)
    busy_s += head_s(MPT_7B, split, cluster.gpu, software)
    assert step.compute_s == pytest.approx(3 * busy_s)
    times, sent_s = (1, sent.per_step_s) if sharding == "zero1" else (3, sent.per_micro_batch_s)
    assert step.data_s == pytest.approx(times * max(share * sent_s, sent_s - busy_s))


@pytest.mark.parametrize("nvlink", [1e9, 3e11])
def test_overlapped_tensor_traffic_exposes_its_first_chunk(nvlink: float) -> None:
    """Exposed as the software stack states; a stage has its share of the layers."""
    gpu = DGX_A100.gpu.model_copy(update={"nvlink_bandwidth_bytes_per_s": nvlink})
    cluster = DGX_A100.model_copy(update={"gpu": gpu})
    half_hidden = FSDP.model_copy(update={"exposed_share": 0.5})
    split = Parallelism("zero1", tensor=4, pipeline=3)
    in_turn, hidden = (
        step_time(GPT_18B, replace(split, overlap_tensor=overlaps), 12, cluster, half_hidden)
        for overlaps in (False, True)
    )
    sent_s = 14 * tensor_traffic_s(GPT_18B, split, Group(4, cluster))  # of 40 layers
    assert in_turn.tensor_s == pytest.approx(sent_s / 2)
    beyond_s = max(0, 3 / 4 * sent_s - in_turn.compute_s)
    assert hidden.tensor_s == pytest.approx(sent_s / 4 + beyond_s)
    assert hidden.bubble_s == pytest.approx(2 * (hidden.compute_s + hidden.tensor_s))


@pytest.mark.parametrize(("recompute", "kernels"), [("none", 21), ("needed", 28), ("full", 29)])
def test_step_waits_for_the_launches_of_its_kernels(recompute: Recompute, kernels: int) -> None:
    """Four micro-batches pass three stages of 14 of 40 layers; the bubble has launches too."""
    split = Parallelism("zero1", pipeline=3, micro_batches=4, recompute=recompute)
    step = step_time(GPT_18B, split, 3, slow_host(0.25), override(FSDP, dispatch_s=0.75))
    assert step.total_s == pytest.approx((4 + 2) * 14 * kernels)
    assert step_time(GPT_18B, split, 3, DGX_A100, FSDP).launch_s == 0


@pytest.mark.parametrize(("software", "kernels"), [(FSDP, 100), (TORCHTITAN, 21)])
def test_eager_software_launches_every_op_and_a_compiler_fuses_them(
    software: SoftwareSpec, kernels: int
) -> None:
    """Of a layer whose program has 100 ops; recomputation launches its share of them again."""
    of_program = replace(GPT_18B, layer_ops=100)
    instant = override(software, dispatch_s=0)
    step = step_time(of_program, Parallelism(), 1, slow_host(1.0), instant)
    assert step.total_s == pytest.approx(40 * kernels)
    again = step_time(of_program, Parallelism(recompute="needed"), 1, slow_host(1.0), instant)
    assert again.total_s == pytest.approx(40 * round(kernels * 28 / 21))


def test_one_gpu_communicates_nothing() -> None:
    """One rank has nothing to reduce or gather."""
    step = step_time(MPT_7B, Parallelism("ddp"), 1, DGX_A100, FSDP)
    assert (step.tensor_s, step.data_s, step.bubble_s) == (0, 0, 0)


def test_recomputing_costs_up_to_a_third() -> None:
    """None, half of the matrix products, a forward pass as far as needed, a whole one."""
    kinds: tuple[Recompute, ...] = ("none", "selective", "needed", "full")
    none, selective, needed, full = (
        step_time(MPT_7B, Parallelism(recompute=kind), 8, DGX_A100, FSDP).compute_s
        for kind in kinds
    )
    assert none < selective < needed < full < 4 / 3 * none * 1.001


def test_context_parallelism_divides_a_sequence_and_adds_ranks_to_its_gradients() -> None:
    """Two GPUs to a sequence: half of the computing each, and as many gradients to reduce."""
    whole = step_time(MPT_7B, Parallelism("zero1"), 8, DGX_A100, FSDP)
    parts = step_time(MPT_7B, Parallelism("zero1", context=2), 8, DGX_A100, FSDP)
    assert parts.samples == whole.samples / 2
    assert parts.compute_s == pytest.approx(whole.compute_s / 2)
    assert parts.optimizer_s == whole.optimizer_s


def test_small_layers_are_less_efficient() -> None:
    """Traffic grows with the hidden size, arithmetic with its square."""
    small = Workload(125_311_488, 768, 12, 12, 2048, 50_368, True, True)
    rates = [
        model_flops_utilisation(
            one,
            step_time(one, Parallelism(micro_batch=8), 8, DGX_A100, FSDP).tokens_per_s,
            8,
            DGX_A100,
        )
        for one in (small, MPT_7B)
    ]
    assert rates[0] < 0.8 * rates[1]


def test_misaligned_heads_are_slow() -> None:
    """Heads of 115 elements miss the tensor cores, which want multiples of 8."""
    aligned = Workload(244_464_576, 1920, 12, 16, 2048, 69)
    odd = replace(aligned, hidden=1840)
    parallelism = Parallelism(micro_batch=8)
    assert seconds(odd, parallelism, 8, software=DEEPSPEED) > seconds(
        aligned, parallelism, 8, software=DEEPSPEED
    )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 9), st.sampled_from(["ddp", "zero1", "zero2", "zero3"]))
def test_step_time_never_falls_with_gpus_at_one_micro_batch(power: int, sharding: Sharding) -> None:
    """Communication grows; the optimizer, which shrinks, is a small part of the step."""
    step_of = [
        step_time(MPT_7B, Parallelism(sharding, micro_batch=4), gpus, DGX_A100, FSDP)
        for gpus in (8 << power, 16 << power)
    ]
    assert step_of[1].data_s >= step_of[0].data_s
    assert step_of[1].compute_s == step_of[0].compute_s


def test_reducing_to_owners_adds_a_collective_per_rank() -> None:
    """DeepSpeed's ZeRO-2 of 2022 slows with the square of the ranks, ZeRO-3 linearly."""

    def data_s(sharding: Sharding, gpus: int) -> float:
        workload = Workload(25_290_752, 512, 8, 8, 2048, 69)
        return step_time(
            workload, Parallelism(sharding, micro_batch=8), gpus, DGX_A100, DEEPSPEED
        ).data_s

    assert data_s("zero2", 1024) / data_s("zero2", 512) == pytest.approx(4, rel=0.2)
    assert data_s("zero3", 1024) / data_s("zero3", 512) == pytest.approx(2, rel=0.1)


def test_misaligned_shards_take_more_steps() -> None:
    """4,096 x 4,096 is divided into shards of whole 16 bytes by 1,024 ranks; 4,100 x 4,100 is not.

    FSDP gathers a layer at once, padded, so that it does not notice.
    """
    aligned = Workload(6_658_859_008, 4096, 32, 32, 2048, 69)
    odd = replace(aligned, hidden=4100)
    many, few = (
        [step_time(one, Parallelism(), gpus, DGX_A100, DEEPSPEED).data_s for one in (aligned, odd)]
        for gpus in (1024, 2)
    )
    assert many[1] > 3 * many[0]
    assert few[1] == pytest.approx(few[0])
    fsdp = [step_time(one, Parallelism(), 1024, DGX_A100, FSDP).data_s for one in (aligned, odd)]
    assert fsdp[1] == pytest.approx(fsdp[0])


def test_host_optimizer_uses_threads_and_frees_the_gpu() -> None:
    """A core updates 81 million parameters per second; weights and gradients pass PCIe."""
    on_gpu = Parallelism(micro_batch=4)
    on_host = replace(on_gpu, optimizer_threads=4)
    step = step_time(MPT_7B, on_host, 8, DGX_A100, FSDP)
    owned = MPT_7B.parameters / 8
    assert step.optimizer_s == pytest.approx(owned / (4 * 81e6) + owned * 4 / 32e9)
    twice = replace(on_gpu, optimizer_threads=8)
    assert step_time(MPT_7B, twice, 8, DGX_A100, FSDP).optimizer_s < 0.6 * step.optimizer_s
    gpu, host = (training_memory(MPT_7B, one, 8, FSDP) for one in (on_gpu, on_host))
    assert gpu.total_bytes - host.total_bytes == pytest.approx(12 * owned)


def test_tree_all_reduce_hardly_grows_with_the_cluster() -> None:
    """DDP on 4,096 GPUs communicates hardly longer than on 512."""
    few, many = (
        step_time(MPT_7B, Parallelism("ddp"), gpus, DGX_A100, AUTOCAST_DDP).data_s
        for gpus in (512, 4096)
    )
    assert few < many < 1.05 * few


def test_asynchronous_tensor_parallelism_and_compilation_help() -> None:
    """Overlap hides communication, and fusion removes traffic."""
    plain = Parallelism("zero3", tensor=8, micro_batch=4)
    hidden = replace(plain, overlap_tensor=True)
    assert seconds(GPT_18B, hidden, 64, DGX_H100, TORCHTITAN) < seconds(
        GPT_18B, plain, 64, DGX_H100, TORCHTITAN
    )
    assert seconds(MPT_7B, Parallelism(), 8, DGX_H100, TORCHTITAN) < seconds(
        MPT_7B, Parallelism(), 8, DGX_H100, TORCHTITAN_EAGER
    )


def test_parallel_blocks_are_summed_once() -> None:
    """GPT-J: of four all-reduces per layer, six if it is recomputed, one or two less."""

    def tensor_s(recompute: Recompute, parallel_blocks: bool) -> float:
        one = replace(GPT_18B, parallel_blocks=parallel_blocks)
        split = Parallelism("zero1", tensor=8, recompute=recompute)
        return step_time(one, split, 8, DGX_A100, FSDP).tensor_s

    assert tensor_s("none", True) == pytest.approx(3 / 4 * tensor_s("none", False))
    assert tensor_s("full", True) == pytest.approx(4 / 6 * tensor_s("full", False))


def test_whole_passes_are_repeated_by_every_rank() -> None:
    """One GPU takes the same time; eight take longer, since they divide less."""
    repeating = FSDP.model_copy(update={"whole_passes": 37})

    def compute_s(software: SoftwareSpec, tensor: int) -> float:
        split = Parallelism("zero1", tensor=tensor)
        return step_time(GPT_18B, split, 8, DGX_A100, software).compute_s

    assert compute_s(repeating, 1) == pytest.approx(compute_s(FSDP, 1))
    assert compute_s(repeating, 8) > 1.01 * compute_s(FSDP, 8)


def test_float8_helps_on_a_chip_that_supports_it() -> None:
    """An H100 doubles its peak; an A100 has no 8-bit unit and pays for the casts."""
    wide, narrow = Parallelism(micro_batch=4), Parallelism(micro_batch=4, float8=True)
    assert seconds(MPT_7B, narrow, 8, DGX_H100) < seconds(MPT_7B, wide, 8, DGX_H100)
    assert seconds(MPT_7B, narrow, 8, DGX_A100) > seconds(MPT_7B, wide, 8, DGX_A100)


def test_more_pipeline_stages_than_layers_are_refused() -> None:
    """A stage has at least one layer."""
    with raises(ConfigError, "more-stages-than-layers"):
        step_time(MPT_7B, Parallelism(pipeline=64), 64, DGX_A100, FSDP)
