"""Elaborate a cluster: role specs from its size, and installations from compiled programs.

Every error in the combination of program, size and machine is found here, before a process starts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from appliance.elaboration.round_size import (
    activation_bytes,
    micro_batches_of_round,
    most_micro_batches,
)
from appliance.elaboration.trips import bytes_elsewhere, check_room, trips_of
from appliance.input.input_worker import WorkerSpec
from csnode.activation_server import ActivationServerSpec
from csnode.devices import DeviceName
from csnode.engine.regions import check_layers, check_region
from csnode.engine.spec import TORCH, EngineSpec
from csnode.node import NodeSpec
from memoryx.memory.flash import check_bound
from memoryx.memory.flash_spec import FlashSpec
from memoryx.optim.cost import (
    state_bytes_per_element,
    update_cost,
    waits_for_all,
)
from memoryx.replica import ReplicaSpec
from memoryx.server import ServerSpec
from memoryx.sparsity.packing import held_bytes, packable
from memoryx.sparsity.step_sparsity import sparsity_by_optimizer
from memoryx.tiers import fill_tiers, tiers_of
from swarmx.switch import SwitchSpec
from swarmx.topology import HostTree, Tree
from waferstream.compiler.compiled import Compiled
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.micro_batches import check_batch
from waferstream.core.program.program import TensorSpec
from waferstream.core.program.schedule import Rounds
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.roles.installation import InputFeed, Installation
from waferstream.core.roles.names import switch_name, worker_name
from waferstream.core.roles.role import RoleSpec
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.sram import SramPlan, check_fits
from waferstream.machine.start_up import (
    StartUp,
    checkpoint_bytes,
    checkpoint_ps,
    start_up,
)
from waferstream.simulator.costed_program import CostedProgram


@dataclass(frozen=True)
class ClusterSize:
    """Number of roles of each kind, and what a host gives to its nodes.

    A node runs ``lanes`` micro-batches side by side. The activations of all nodes may take
    ``activation_bytes`` of a host's memory, which decides how many micro-batches are a round.
    """

    num_csx: int
    num_servers: int = 1
    num_workers: int = 1
    lanes: int = 1
    has_replicas: bool = False  # whether every weight server has one
    is_verified: bool = False  # whether nodes compute parts of others, too
    activation_bytes: int | Literal["auto"] = "auto"
    flash: FlashSpec | None = None  # where weight servers keep masters and state, if not in DRAM
    engine: EngineSpec = TORCH  # what computes the kernels of nodes
    device: DeviceName = "cpu"  # where torch computes them
    num_activation_servers: int | Literal["auto"] = 0


def elaborate(
    parameters: Sequence[TensorSpec],
    size: ClusterSize,
    machine: MachineSpec,
    seed: int,
    tree: Tree | HostTree | None = None,
) -> tuple[RoleSpec, ...]:
    """Return the specs of all roles of a cluster: of weights, switches, nodes, inputs, activations.

    Args:
        parameters: The parameters of the model that the cluster will hold.
        size: Number of roles of each kind.
        machine: The emulated machine.
        seed: Seed of all random numbers of the model.
        tree: The tree that the roles form; by default that of the emulated machine.

    Raises:
        ApplianceResourceExhausted: The weights do not fit MemoryX.
        ConfigError: A parameter exceeds what weight servers may have in DRAM, or the machine has
            fewer systems.
    """
    machine.check_systems(size.num_csx)
    fill_tiers(machine.memoryx, sum(spec.num_elements for spec in parameters))
    if size.flash is not None:
        check_bound(size.flash, {spec.name: spec for spec in parameters})
    check_region(size.engine, machine.system.fabric)
    tree = tree or Tree(size.num_csx, machine.swarmx.fan_out)
    return (
        *_servers(parameters, size, machine),
        *_switches(tree),
        *_nodes(tree, size, machine, seed),
        *_workers(size),
        *_activation_servers(size),
    )


def _servers(
    parameters: Sequence[TensorSpec], size: ClusterSize, machine: MachineSpec
) -> Iterator[ServerSpec | ReplicaSpec]:
    everything = tuple(parameters)
    for index in range(size.num_servers):
        yield ServerSpec(
            index=index,
            num_servers=size.num_servers,
            root=switch_name(0),
            parameters=everything,
            window=machine.memoryx.prefetch_buckets,
            flash=size.flash,
        )
    if size.has_replicas:
        for index in range(size.num_servers):
            yield ReplicaSpec(index, size.num_servers, everything, size.flash)


def _switches(tree: Tree | HostTree) -> Iterator[SwitchSpec]:
    for switch in tree.switches:
        yield SwitchSpec(
            index=switch.index,
            parent=None if switch.parent is None else switch_name(switch.parent),
            children=switch.children,
            nodes=switch.nodes,
        )


def _nodes(
    tree: Tree | HostTree, size: ClusterSize, machine: MachineSpec, seed: int
) -> Iterator[NodeSpec]:
    for index in range(size.num_csx):
        yield NodeSpec(
            index=index,
            parent=switch_name(tree.parent_of(index)),
            worker=worker_name(index % size.num_workers),
            seed=seed,
            lanes=size.lanes,
            sram_bytes=machine.system.sram_bytes,
            engine=size.engine,
            device=size.device,
        )


def _activation_servers(size: ClusterSize) -> Iterator[ActivationServerSpec]:
    assert size.num_activation_servers != "auto", "the first program decides"
    yield from map(ActivationServerSpec, range(size.num_activation_servers))


def _workers(size: ClusterSize) -> Iterator[WorkerSpec]:
    for index in range(size.num_workers):
        yield WorkerSpec(index=index, nodes=tuple(range(index, size.num_csx, size.num_workers)))


def plan_installation(
    compiled: Compiled,
    feed: InputFeed,
    optimizer: OptimizerSpec | None,
    size: ClusterSize,
    machine: MachineSpec,
) -> Installation:
    """Return the installation of a compiled program on a cluster.

    Raises:
        ConfigError: There are too few micro-batches for the systems, or a parameter with its state
            exceeds what weight servers may have in DRAM.
        ApplianceResourceExhausted: The activations of a micro-batch do not fit a wafer, or what
            cannot leave a node does not fit its host; or weights, gradients and optimizer state
            do not fit MemoryX.
    """
    program = compiled.program
    check_batch(program.batch_size, program.micro_batch_size, size.num_csx)
    sram_plan = SramPlan.of(program, machine).in_blocks()
    check_fits(sram_plan)
    program = sram_plan.program
    check_layers(size.engine, program, machine.system.fabric)
    state_bytes = state_bytes_per_element(optimizer, program.parameter)
    sparse = () if optimizer is None else optimizer.sparsity
    tiers_of(program, machine.memoryx, state_bytes, sparse)
    weight_bytes = held_bytes(program, state_bytes, packable(optimizer)).total
    if size.flash is not None:
        check_bound(size.flash, program.parameter, optimizer)
        weight_bytes = min(weight_bytes, size.flash.resident_bytes * size.num_servers)
    budget_bytes = activation_bytes(size.activation_bytes, weight_bytes)
    if size.is_verified:  # in the worst draw, every node's part of a round is computed twice
        budget_bytes //= 2
    room = program, size.num_csx, size.lanes, budget_bytes
    pages = sram_plan.pages
    trips = trips_of(program, pages, *room[1:], size.num_activation_servers)
    if trips.all and size.activation_bytes != "auto":
        check_room(program, trips, size.num_csx, size.lanes, budget_bytes)
    return Installation(
        program=program,
        kernels=compiled.kernels,
        plan=plan_streams(program, size.num_servers),
        rounds=Rounds(
            program.num_micro_batches, size.num_csx, micro_batches_of_round(*room, trips.all)
        ),
        feed=feed,
        optimizer=optimizer,
        label_counts=compiled.label_counts,
        whole=compiled.whole,
        guards=compiled.guards,
        state_update=compiled.state_update,
        norms=compiled.norms,
        gradient_kernels=compiled.gradient_kernels,
        short=compiled.short,
        has_replicas=size.has_replicas,
        most_per_node=most_micro_batches(*room, trips.all),
        trips=trips,
        bytes_elsewhere=bytes_elsewhere(program, () if trips.num_servers else pages),
    )


def costed_program(installation: Installation, machine: MachineSpec) -> CostedProgram:
    """Return the program of an installation with its costs on a machine.

    Raises ApplianceResourceExhausted if model and optimizer do not fit MemoryX.
    """
    program, optimizer = installation.program, installation.optimizer
    return CostedProgram.of(
        program,
        installation.plan,
        machine,
        update=update_cost(optimizer, program.parameter),
        waits_for_all=waits_for_all(optimizer),
        loading=installation.feed.loading,
        sparsity=sparsity_by_optimizer(optimizer, program.parameter),
        sparse=() if optimizer is None else optimizer.sparsity,
    )


def start_up_of(
    installation: Installation, machine: MachineSpec, sizes: Sequence[int]
) -> tuple[StartUp, int]:
    """Return the emulated start-up of a cluster with this first program, and ps of a checkpoint.

    Its compiler tries micro-batches of ``sizes``.
    """
    program = installation.program
    elements = sum(spec.num_elements for spec in program.parameters)
    state_bytes = state_bytes_per_element(installation.optimizer, program.parameter)
    return (
        start_up(machine, program, sizes),
        checkpoint_ps(machine.system.hosts, checkpoint_bytes(elements, state_bytes)),
    )
