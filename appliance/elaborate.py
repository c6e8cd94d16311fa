"""Elaboration: from a workload and the size of a cluster to the specs of all its rooms.

Everything that can be wrong with the combination is found here, before any process starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from appliance.input_worker import WorkerSpec
from appliance.workload import ClusterSize, Workload
from csnode.node import NodeSpec
from memoryx.server import ServerSpec
from swarmx.switch import SwitchSpec
from swarmx.topology import Tree
from wsc.core.errors import ApplianceResourceExhausted, ConfigError
from wsc.core.names import switch_name, worker_name
from wsc.core.program import Mode, Program, StreamPlan, plan_streams
from wsc.core.room import RoomSpec
from wsc.core.rounds import Rounds
from wsc.core.units import format_bytes
from wsc.timing.hardware import MachineSpec


@dataclass(frozen=True)
class Elaboration:
    """A cluster on paper: its rooms, and the plans that they share."""

    size: ClusterSize
    machine: MachineSpec
    programs: Mapping[Mode, Program]
    plans: Mapping[Mode, StreamPlan]
    rooms: tuple[RoomSpec, ...]


def elaborate(workload: Workload, size: ClusterSize, machine: MachineSpec) -> Elaboration:
    """All rooms of a cluster for a workload.

    Raises ConfigError or ApplianceResourceExhausted when the two do not go together.
    """
    programs = {mode: compiled.program for mode, compiled in workload.compiled.items()}
    for program in programs.values():
        _check_batch(program, size)
    _check_memory(workload, machine)
    plans = {mode: plan_streams(program, size.num_servers) for mode, program in programs.items()}
    rounds = {
        mode: Rounds(program.num_micro_batches, size.num_csx, size.lanes)
        for mode, program in programs.items()
    }
    tree = Tree(size.num_csx, machine.swarmx.fan_out)
    rooms: list[RoomSpec] = [
        ServerSpec(
            index=index,
            num_servers=size.num_servers,
            root=switch_name(0),
            programs=programs,
            plans=plans,
            rounds=rounds,
            optimizer=workload.optimizer,
            window=machine.memoryx.prefetch_shards,
        )
        for index in range(size.num_servers)
    ]
    rooms += [
        SwitchSpec(
            index=switch.index,
            parent=None if switch.parent is None else switch_name(switch.parent),
            children=switch.children,
            nodes=switch.nodes,
            plans=plans,
            rounds=rounds,
        )
        for switch in tree.switches
    ]
    rooms += [
        NodeSpec(
            index=node,
            parent=switch_name(tree.parent_of(node)),
            worker=worker_name(node % size.num_workers),
            compiled=workload.compiled,
            plans=plans,
            rounds=rounds,
            seed=workload.seed,
            sram_bytes=machine.system.sram_bytes,
        )
        for node in range(size.num_csx)
    ]
    rooms += [
        WorkerSpec(
            index=worker,
            nodes=tuple(range(worker, size.num_csx, size.num_workers)),
            feeds=workload.feeds,
            programs=programs,
            rounds=rounds,
        )
        for worker in range(size.num_workers)
    ]
    return Elaboration(size, machine, programs, plans, tuple(rooms))


def _check_batch(program: Program, size: ClusterSize) -> None:
    if program.num_micro_batches < size.num_csx:
        raise ConfigError(
            f"{size.num_csx} CS systems have only {program.num_micro_batches} micro-batches "
            "to share",
            value=f"batch_size {program.batch_size}, micro_batch_size {program.micro_batch_size}",
            rule="batch_size / micro_batch_size is at least num_csx",
            remedy="lower csx.performance.micro_batch_size or num_csx, or raise batch_size",
        )


def _check_memory(workload: Workload, machine: MachineSpec) -> None:
    """Masters and optimizer state must fit MemoryX; activations of a micro-batch the wafer."""
    program = next(iter(workload.compiled.values())).program
    masters = sum(spec.num_bytes for spec in program.parameters)
    if masters > machine.memoryx.dram_bytes:
        raise ApplianceResourceExhausted(
            f"the model's fp32 weights need {format_bytes(masters)} of MemoryX",
            rule=f"MemoryX has {format_bytes(machine.memoryx.dram_bytes)}",
            remedy="choose a smaller model, or raise memoryx.dram_bytes in cluster.yaml",
        )
    for mode, compiled in workload.compiled.items():
        peak = peak_stash_bytes(compiled.program)
        if peak > machine.system.sram_bytes:
            raise ApplianceResourceExhausted(
                f"the activations of one {mode} micro-batch need {format_bytes(peak)} of SRAM",
                value=f"micro-batch of {compiled.program.micro_batch_size} samples",
                rule=f"a {machine.system.name} has {format_bytes(machine.system.sram_bytes)}",
                remedy="choose a smaller csx.performance.micro_batch_size",
            )


def peak_stash_bytes(program: Program) -> int:
    """Upper bound of what one micro-batch stashes: all that the forward segments keep."""
    forward = (segment for segment in program.segments if segment.phase == "forward")
    return sum(segment.stash_bytes for segment in forward)
