"""The start of a cluster, up to the point where it has its first program and its weights."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from appliance.coordinator.cluster import Cluster
from appliance.elaboration.elaborate import ClusterSize
from appliance.elaboration.host_need import check_host, check_hosts
from appliance.placement.placer import (
    Placement,
    bytes_of_activations,
    check_gpus,
    check_gpus_of_hosts,
)
from appliance.plan import ClusterPlan
from appliance.starting import lanes_on, start_cluster
from cstorch.cluster.config import ClusterConfig
from cstorch.cluster.restored import Restored, load_weights
from cstorch.remote.weights import Weights
from waferstream.core.events import Milestone, RolesAwaited
from waferstream.core.roles.commands import Install
from waferstream.core.roles.installation import Installation
from waferstream.core.units import counted
from waferstream.host.terminal import spinning
from waferstream.host.words import PLAIN_LOG, VENDOR_LOG
from waferstream.management.client.site import address_of
from waferstream.management.model.launched import DASHBOARD

log = logging.getLogger("waferstream")


def size_of(config: ClusterConfig) -> ClusterSize:
    """Return the number of actors of each role."""
    machine, runtime = config.cluster.machine, config.cluster.runtime
    workers = max(1, config.num_csx * config.num_workers_per_csx)
    return ClusterSize(
        num_csx=config.num_csx,
        num_servers=config.max_wgt_servers or machine.memoryx.weight_servers,
        num_workers=min(workers, runtime.input_workers, config.num_csx),
        num_activation_servers=config.num_activation_servers,
        lanes=lanes_on(runtime, config.num_csx),
        activation_bytes=bytes_of_activations(runtime, config.num_csx),
        flash=runtime.flash,
        engine=runtime.engine,
        device=runtime.device,
        is_verified=runtime.verify.fraction > 0,
        has_replicas=config.autorestart is not None
        and runtime.recovery.weight_servers == "replica",
    )


def start_filled(
    config: ClusterConfig,
    seed: int,
    installation: Installation,
    weights: Weights,
    restored: Restored | None,
    finish: Callable[[Installation], Installation],
) -> Cluster:
    """Start a cluster; return it when it has its first program and its weights.

    The installation is finished when the roles run. If that fails, no cluster is left.

    Raises:
        ApplianceResourceExhausted: A host has too little memory for its roles.
        ClusterJobInitError: A host has too few GPUs for its systems.
    """
    runtime = config.cluster.runtime
    size = replace(size_of(config), num_activation_servers=installation.trips.num_servers)
    is_here = config.mgmt_address is None and (
        runtime.kind == "local" or runtime.address == "local"
    )
    if is_here:  # all roles are on this host
        check_host(installation, size)
        check_gpus(runtime.device, size.num_csx)
    parameters = installation.program.parameters
    VENDOR_LOG.info(RolesAwaited("Weight", size.num_servers))
    VENDOR_LOG.info(RolesAwaited("Worker", size.num_workers))
    if num_servers := installation.trips.num_servers:
        VENDOR_LOG.info(RolesAwaited("Activation", num_servers))
    VENDOR_LOG.info(Milestone.STARTING)
    what = _started(config)
    log.info("Starting %s", what)
    with spinning(f"Starting {what}"):
        plan = ClusterPlan(
            parameters, size, config.cluster, seed, config.trace_limit, config.autorestart
        )
        cluster = _start(config, plan, partial(_check_placement, installation, size))
    if dashboard := os.environ.get(DASHBOARD):
        VENDOR_LOG.info("%s, dashboard: %s", Milestone.STARTED, dashboard)
        PLAIN_LOG.info("Dashboard: %s", dashboard)
    else:
        VENDOR_LOG.info(Milestone.STARTED)
    VENDOR_LOG.info("Preparing to execute using %d CSX", size.num_csx)
    try:
        load_weights(cluster, weights, restored)
        VENDOR_LOG.info("Finalizing appliance staging for the run")
        VENDOR_LOG.info("Waiting for device programming to complete")
        cluster.do(Install(finish(installation)))
        _log_staged(config)
        servers = installation.trips.num_servers
        PLAIN_LOG.info("%s is ready: %s", config.machine_name, _roles_of(size, servers))
    except BaseException:
        cluster.shutdown()
        raise
    return cluster


def _start(config: ClusterConfig, plan: ClusterPlan, check: Callable[[Placement], None]) -> Cluster:
    """Start a cluster here, at a server, or where a management says."""
    if config.mgmt_address is None:
        return start_cluster(plan, check)
    if (access := config.access) is not None:
        from appliance.remote.cluster import start_remote  # noqa: PLC0415  (gRPC: slow)

        return start_remote(access, plan)
    from appliance.remote.reservation import start_reserved  # noqa: PLC0415  (gRPC: slow)

    address = address_of(config.mgmt_address, config.credentials_path)
    assert address is not None, "it is named"
    return start_reserved(address, config.submission, plan)


def _started(config: ClusterConfig) -> str:
    """Return what starts with a cluster, in words."""
    runtime = config.cluster.runtime
    if config.mgmt_address is not None:
        return f"the cluster at {config.mgmt_address}"
    if runtime.kind == "local":
        return "roles in this process"
    return "Ray (5 to 20 s)" if runtime.address == "local" else "roles on the Ray cluster"


def _check_placement(installation: Installation, size: ClusterSize, placement: Placement) -> None:
    """Check that each host has the memory and the GPUs for its roles, as far as it is known."""
    check_hosts(installation, size, placement)
    check_gpus_of_hosts(size.device, placement)


def _roles_of(size: ClusterSize, num_activation_servers: int) -> str:
    """Return the roles beside the systems, in words."""
    roles = [
        counted(size.num_servers, "weight server"),
        counted(size.num_workers, "input worker"),
    ]
    if num_activation_servers:
        roles.append(counted(num_activation_servers, "activation server"))
    return ", ".join(roles)


def _log_staged(config: ClusterConfig) -> None:
    """Log that every role has its program and weights, in the words of the vendor's client."""
    runtime = config.cluster.runtime
    network = "none (one process)" if runtime.kind == "local" else runtime.carrier
    VENDOR_LOG.info("Device programming is complete")
    VENDOR_LOG.info("Using network type: %s", network)
    VENDOR_LOG.info("Input workers are ready to stream input data")
    VENDOR_LOG.info("Appliance staging is complete")
    VENDOR_LOG.info(Milestone.RUNNING)
