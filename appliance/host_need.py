"""The memory that a cluster needs on one host, checked before anything of it is built."""

from __future__ import annotations

from appliance.elaborate import ClusterSize
from appliance.host_memory import free_bytes, swap_bytes
from appliance.round_size import bytes_of_node
from memoryx.optim.cost import state_bytes_per_element
from wsc.core.errors import ApplianceResourceExhausted
from wsc.core.installation import Installation
from wsc.core.program import GRADIENT_BYTES, MASTER_BYTES
from wsc.core.units import format_bytes


def needs_of(installation: Installation, size: ClusterSize) -> dict[str, int]:
    """Return the bytes that all roles together need at least, by purpose.

    Copies of weights on their way, the interpreters of the roles, and pages that the allocator
    keeps come on top.
    """
    program = installation.program
    trained = program.num_elements(program.trained)
    fixed, each = bytes_of_node(program, size.lanes)
    share = -(-program.num_micro_batches // size.num_csx)
    state_bytes = state_bytes_per_element(installation.optimizer, program.parameter)
    has_rounds = share > installation.rounds.per_node
    weights = {
        "fp32 weights": MASTER_BYTES * program.num_elements(program.parameter),
        "optimizer state": state_bytes * trained,
    }
    if size.flash is not None:
        resident = size.flash.resident_bytes * size.num_servers
        weights = {"weights and state beside flash": min(resident, sum(weights.values()))}
    needs = {
        **weights,
        "gradient sums": GRADIENT_BYTES * trained if has_rounds else 0,
        f"activations of {size.num_csx} x {min(size.lanes, share)} micro-batches": size.num_csx
        * (fixed + min(size.lanes, share) * each),
    }
    return {purpose: num_bytes for purpose, num_bytes in needs.items() if num_bytes}


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
    total = sum(needs.values())
    if total <= free:
        return
    raise ApplianceResourceExhausted(
        f"training needs at least {format_bytes(total)} of memory on this host",
        code="model-exceeds-host",
        where="this host, on which all roles run",
        value=", ".join(f"{name} {format_bytes(size)}" for name, size in needs.items()),
        rule=f"{format_bytes(free)} are free, swap included",
        remedy="predict the run without weights or data (--simulate); train fewer layers or on "
        "fewer systems; set a smaller csx.performance.micro_batch_size; keep weights and state on "
        "a disk (runtime.flash); or join a Ray cluster of several hosts (docs/deployment.md)",
    )
