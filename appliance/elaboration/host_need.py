"""The memory that a cluster needs on each host, checked before anything of it is built there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from appliance.elaboration.elaborate import ClusterSize
from appliance.elaboration.round_size import (
    activation_bytes,
    bytes_of_node,
    micro_batches_of_round,
    most_away_bytes,
)
from appliance.elaboration.trips import trips_of
from appliance.placement.host_memory import free_bytes, swap_bytes
from appliance.placement.placer import Placement
from appliance.spec import RuntimeSpec
from memoryx.memory.flash_spec import FlashSpec
from memoryx.optim.cost import state_bytes_per_element
from memoryx.sparsity.packing import HeldBytes, held_bytes, packable
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.program.program import Program
from waferstream.core.program.stream_plan import GRADIENT_BYTES
from waferstream.core.program.trips import Trip
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.names import activation_server_name, server_name
from waferstream.core.units import format_bytes
from waferstream.machine.sram import Page


@dataclass(frozen=True)
class HostRoles:
    """The roles of a host that take memory: its parts of all servers, and its systems."""

    part_of_servers: float
    num_systems: int
    lanes: int
    part_of_activations: float = 1.0


def roles_on(
    placement: Placement, num_servers: int, num_activation_servers: int = 0
) -> tuple[HostRoles, ...]:
    """Return the roles of each host of a placement."""
    servers = [placement.host_of(server_name(index)) for index in range(num_servers)]
    activations = range(num_activation_servers)
    keepers = [placement.host_of(activation_server_name(index)) for index in activations]
    return tuple(
        HostRoles(
            part_of_servers=servers.count(host) / num_servers,
            num_systems=len(systems),
            lanes=placement.lanes_of(systems[0]) if systems else 0,
            part_of_activations=keepers.count(host) / max(1, num_activation_servers),
        )
        for host, systems in enumerate(placement.systems)
    )


@dataclass(frozen=True)
class ServerNeeds:
    """The bytes that all weight servers together need at least.

    Args:
        training: By purpose, while a step is trained.
        loading: While weights are loaded and masks are made.
    """

    training: Mapping[str, int]
    loading: int


@dataclass(frozen=True)
class HostNeed:
    """The bytes that the roles of a host need at least: by purpose in training, and in loading."""

    training: Mapping[str, int]
    loading: int

    @property
    def total(self) -> int:
        """The larger of both."""
        return max(self.loading, sum(self.training.values()))


def needs_of(installation: Installation, size: ClusterSize) -> HostNeed:
    """Return the bytes that all roles together need at least."""
    weights = weight_needs(installation, size)
    roles = HostRoles(1.0, size.num_csx, size.lanes)
    return needs_on(roles, weights, installation.program, size.num_csx, installation.trips.all)


def needs_on(
    roles: HostRoles,
    weights: ServerNeeds,
    program: Program,
    num_csx: int,
    trips: Sequence[Trip] = (),
) -> HostNeed:
    """Return the bytes that the roles of one host need at least.

    Copies of weights on their way, the interpreters of the roles, and pages that the allocator
    keeps come on top.

    Args:
        roles: The roles.
        weights: The bytes of all weight servers.
        program: What the systems compute.
        num_csx: The systems of the cluster.
        trips: What of a micro-batch is on activation servers.
    """
    fixed, each = bytes_of_node(program, roles.lanes, trips)
    lanes = _lanes_in_use(program, num_csx, roles.lanes)
    part = roles.part_of_servers
    needs = {name: round(num_bytes * part) for name, num_bytes in weights.training.items()}
    activations = f"activations of {roles.num_systems} x {lanes} micro-batches"
    needs[activations] = roles.num_systems * (fixed + lanes * each)
    away = bytes_away(program, num_csx, roles.lanes, trips)
    needs["activations of activation servers"] = round(away * roles.part_of_activations)
    training = {purpose: num_bytes for purpose, num_bytes in needs.items() if num_bytes}
    return HostNeed(training, round(weights.loading * part))


def bytes_away(program: Program, num_csx: int, lanes: int, trips: Sequence[Trip]) -> int:
    """Return the bytes that all activation servers together need at least."""
    in_use = max(1, _lanes_in_use(program, num_csx, lanes))
    return num_csx * in_use * most_away_bytes(program, trips)


def _lanes_in_use(program: Program, num_csx: int, lanes: int) -> int:
    return min(lanes, -(-program.num_micro_batches // num_csx))


def weight_needs(installation: Installation, size: ClusterSize) -> ServerNeeds:
    """Return the bytes that all weight servers together need."""
    program, optimizer = installation.program, installation.optimizer
    state_bytes = state_bytes_per_element(optimizer, program.parameter)
    held = held_bytes(program, state_bytes, packable(optimizer))
    share = -(-program.num_micro_batches // size.num_csx)
    has_rounds = share > installation.rounds.per_node
    resident = None if size.flash is None else size.flash.resident_bytes * size.num_servers
    return server_needs(program, held, resident, has_rounds=has_rounds)


def server_needs(
    program: Program, held: HeldBytes, resident_bytes: int | None, *, has_rounds: bool
) -> ServerNeeds:
    """Return the bytes that all weight servers together need.

    Args:
        program: What the systems compute.
        held: What masters and state take without flash.
        resident_bytes: Weights and state that stay beside flash; None without flash.
        has_rounds: Whether a step has several rounds, over which gradients are summed.
    """
    weights = {
        "fp32 weights": held.masters,
        "optimizer state": held.state,
        "sparse weights, their state and masks": held.sparse,
    }
    loading = held.loading
    if resident_bytes is not None:
        weights = {"weights and state beside flash": min(resident_bytes, held.total)}
        loading = min(resident_bytes, loading)
    sums = GRADIENT_BYTES * program.num_elements(program.trained) if has_rounds else 0
    return ServerNeeds({**weights, "gradient sums": sums}, loading)


def needs_of_hosts(
    program: Program,
    pages: Sequence[Page],
    held: HeldBytes,
    runtime: RuntimeSpec,
    num_servers: int,
    placement: Placement,
) -> list[HostNeed]:
    """Return the bytes that the roles of each host of a placement need at least.

    Rounds are those of a run whose program is on the first host. Where its memory is unknown they
    are the smallest ones, as the activations are.

    Args:
        program: What the systems compute.
        pages: What the emulated systems have no room for.
        held: What masters and state take without flash.
        runtime: How the cluster runs.
        num_servers: Weight servers.
        placement: The hosts of all roles.
    """
    num_csx = placement.num_systems
    lanes = max(each.lanes for each in roles_on(placement, num_servers))
    resident = None if runtime.flash is None else runtime.flash.resident_bytes * num_servers
    in_memory = held.total if resident is None else min(held.total, resident)
    free = placement.hosts[0].free_bytes or 0
    budget = activation_bytes(runtime.activation_memory, in_memory, free)
    trips = trips_of(program, pages, num_csx, lanes, budget, runtime.activation_servers)
    per_node = micro_batches_of_round(program, num_csx, lanes, budget, trips.all)
    has_rounds = -(-program.num_micro_batches // num_csx) > per_node
    weights = server_needs(program, held, resident, has_rounds=has_rounds)
    roles = roles_on(placement, num_servers, trips.num_servers)
    return [needs_on(each, weights, program, num_csx, trips.all) for each in roles]


def check_hosts(installation: Installation, size: ClusterSize, placement: Placement) -> None:
    """Check that each host has the memory for its roles, as far as it is known.

    Raises:
        ApplianceResourceExhausted: The kernel of a host would end a process in the middle of a
            step.
    """
    weights = weight_needs(installation, size)
    program, num_csx = installation.program, placement.num_systems
    remedy = remedy_on_hosts(placement, size.num_servers, size.flash)
    by_host = roles_on(placement, size.num_servers, installation.trips.num_servers)
    for host, roles in zip(placement.hosts, by_host, strict=True):
        needs = needs_on(roles, weights, program, num_csx, installation.trips.all)
        if host.free_bytes is not None and needs.total > host.free_bytes:
            raise _exceeded(needs, host.free_bytes, f"host {host.address}", remedy)


def check_host(installation: Installation, size: ClusterSize, free: int | None = None) -> None:
    """Check that one host has the memory for a cluster.

    Args:
        installation: What the roles will get.
        size: Their numbers.
        free: Bytes that are free, swap included; those of this host by default.

    Raises:
        ApplianceResourceExhausted: The kernel would end a process in the middle of a step.
    """
    free = free_bytes() + swap_bytes() if free is None else free
    needs = needs_of(installation, size)
    if needs.total <= free:
        return
    raise _exceeded(needs, free, "this host, on which all roles run", _OWN_HOST)


_OWN_HOST = (
    "predict the run without weights or data (--simulate); train fewer layers or on fewer systems; "
    "set a smaller csx.performance.micro_batch_size; keep weights and state on a disk "
    "(runtime.flash); or join a Ray cluster of several hosts (docs/deployment.md)"
)


def remedy_on_hosts(placement: Placement, num_servers: int, flash: FlashSpec | None) -> str:
    """Return the settings that would lower the need of a host, without those that are set."""
    flash_remedy = "keep weights and state on a disk (runtime.flash)"
    if flash is not None:
        flash_remedy = "keep fewer weights and states in DRAM (runtime.flash.resident_bytes)"
    remedies = [
        *_spread_remedies(placement, num_servers),
        "set a smaller csx.performance.micro_batch_size",
        flash_remedy,
        "or add hosts (`waferstream cluster plan --params FILE` shows what each one needs)",
    ]
    return "; ".join(remedies)


def _spread_remedies(placement: Placement, num_servers: int) -> Iterator[str]:
    """Yield settings with which roles leave the hosts that have most of them."""
    counts = [len(systems) for systems in placement.systems]
    hosts = zip(placement.hosts, counts, strict=True)
    if any(count < host.capacity and count + 1 < max(counts) for host, count in hosts):
        yield "spread the systems over the hosts (runtime.placement: SPREAD)"
    num_hosts = len(placement.hosts)
    settings = []
    if placement.servers == "PACK" and num_hosts > 1:
        settings.append("runtime.server_placement: SPREAD")
    if num_servers < num_hosts:
        settings.append(f"memoryx.weight_servers: {num_hosts}")
    if settings:
        where = "; ".join((*settings, "examples/many_hosts.yaml"))
        yield f"spread the weights over the hosts of systems ({where})"


def _exceeded(needs: HostNeed, free: int, where: str, remedy: str) -> ApplianceResourceExhausted:
    parts = ", ".join(f"{name} {format_bytes(size)}" for name, size in needs.training.items())
    return ApplianceResourceExhausted(
        f"training needs at least {format_bytes(needs.total)} of memory on one host",
        code="model-exceeds-host",
        where=where,
        value=f"{parts}; while weights are loaded {format_bytes(needs.loading)}",
        rule=f"{format_bytes(free)} are free, swap included",
        remedy=remedy,
    )
