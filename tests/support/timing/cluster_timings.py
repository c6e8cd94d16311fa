"""Timing models of small programs and of all kinds of machines, for tests of emulated time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from memoryx.optim.cost import UpdateCost
from waferstream.core.program.program import Program, ProgramKind, TensorSpec
from waferstream.core.program.segment import OpWork, Segment
from waferstream.core.program.stream_plan import plan_streams
from waferstream.machine.attribution import StepTiming
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.record import Record
from waferstream.simulator.cluster_timing import ClusterTiming
from waferstream.simulator.costed_program import CostedProgram

MEGA, GIGA, TERA = 10**6, 10**9, 10**12
ADAMW = UpdateCost(state_bytes=8, flops=15)


def product(flops: int) -> OpWork:
    """A matrix product with streamed weights that does so many operations."""
    shape = (1, flops // (2 * 1000 * 1000), 1000, 1000)
    return OpWork("mm", "matmul", flops, shape, streams=True)


def make_program(
    *,
    kind: ProgramKind = ProgramKind.TRAIN,
    layers: int = 3,
    elements: int = MEGA,
    flops: int = TERA,
    micro_batches: int = 8,
    input_elements: int = 1000,
    blocks: int = 1,
) -> Program:
    """``layers`` equal layers with two parameters each; backward does twice the forward's work."""
    names = [(f"{layer}.weight", f"{layer}.bias") for layer in range(layers)]
    forward = [("forward", layer) for layer in range(layers)]
    backward = [("backward", layer) for layer in reversed(range(layers))]
    order = forward + (backward if kind.updates else [])
    segments = tuple(
        Segment(
            index=index,
            phase=phase,  # type: ignore[arg-type]
            layer=str(layer),
            weights=names[layer],
            gradients=names[layer] if phase == "backward" else (),
            inputs=(),
            outputs=("x",),
            drops=("x",),
            results=((0, "loss"),) if index == layers - 1 else (),
            work=(product(flops * (2 if phase == "backward" else 1)),) if flops else (),
            blocks=blocks,
        )
        for index, (phase, layer) in enumerate(order)
    )
    return Program(
        kind=kind,
        digest="by hand",
        parameters=tuple(
            TensorSpec(name, shape, "float32")
            for pair in names
            for name, shape in zip(pair, [(elements,), (100,)], strict=True)
        ),
        stream_dtype="bfloat16",
        inputs=(TensorSpec("tokens", (input_elements,), "int32"),),
        num_results=1,
        segments=segments,
        micro_batch_size=4,
        num_micro_batches=micro_batches,
    )


def make_machine(**changes: dict[str, Any]) -> MachineSpec:
    """A CS-2 whose segments start at once, with changes by section."""
    system = {"segment_overhead_ps": 0, **changes.pop("system", {})}
    return MachineSpec.model_validate({"system": system, **changes})


def make_timing(
    program: Program,
    machine: MachineSpec | None = None,
    *,
    num_nodes: int = 1,
    num_servers: int = 1,
    waits_for_all: bool = False,
    record: Record | None = None,
    others: Sequence[Program] = (),
) -> ClusterTiming:
    cluster = ClusterTiming(machine or make_machine(), num_nodes, num_servers, record=record)
    for each in (program, *others):
        costed = CostedProgram.of(
            each,
            plan_streams(each, num_servers),
            cluster.machine,
            update=ADAMW,
            waits_for_all=waits_for_all,
        )
        cluster.load_program(costed)
    return cluster


def run(
    cluster: ClusterTiming, steps: int = 4, kind: ProgramKind = ProgramKind.TRAIN
) -> list[StepTiming]:
    return [cluster.step(kind, step) for step in range(1, steps + 1)]


programs = st.builds(
    make_program,
    layers=st.integers(1, 5),
    elements=st.sampled_from([1, 1000, MEGA, 100 * MEGA]),
    flops=st.sampled_from([0, GIGA, TERA, 100 * TERA]),
    micro_batches=st.integers(1, 9),
    input_elements=st.sampled_from([1, MEGA, 1000 * MEGA]),
    blocks=st.sampled_from([1, 1, 4]),
)
shapes = st.fixed_dictionaries(
    {
        "num_nodes": st.integers(1, 10),
        "num_servers": st.integers(1, 3),
        "waits_for_all": st.booleans(),
    }
)

even_machines = st.fixed_dictionaries(
    {
        "input": st.fixed_dictionaries(
            {"other": st.builds(dict, sample_ps=st.sampled_from([0, 10**9, 10**12]))}
        ),
        "memoryx": st.fixed_dictionaries(
            {
                "dram_bytes": st.sampled_from([1, 10 * MEGA, 1000 * GIGA]),
                "flash_bytes": st.just(1000 * TERA),
                "flash_bandwidth_bytes_per_s": st.sampled_from([GIGA, 600 * GIGA]),
                "flops_per_s": st.sampled_from([10 * GIGA, 15 * TERA]),
                "memory_bandwidth_bytes_per_s": st.sampled_from([GIGA, 100 * GIGA, 2400 * GIGA]),
            }
        ),
    }
)
slow_roles = st.dictionaries(
    st.sampled_from(["csx-0", "csx-3", "br-0", "br-1", "wgt-0", "wgt-1"]), st.floats(1, 4)
)
uneven = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 9),
        "kernel_sigma": st.sampled_from([0.0, 0.1, 0.5]),
        "transfer_sigma": st.sampled_from([0.0, 0.1, 0.5]),
        "stragglers": slow_roles,
    }
)
machines = st.builds(lambda even, jitter: {**even, "jitter": jitter}, even_machines, uneven)


def machine_with_memory(bytes_per_s: int) -> MachineSpec:
    """Return a machine whose weight servers have a memory of so many bytes per second."""
    return make_machine(memoryx={"memory_bandwidth_bytes_per_s": bytes_per_s})
