"""Role for all actors, reserved at once: either the whole cluster fits, or it does not start."""

from __future__ import annotations

from collections.abc import Sequence

import ray
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from appliance.spec import RuntimeSpec
from wsc.core.errors import ClusterJobInitError
from wsc.core.names import node_name

_SHARE_OF_A_CPU = 0.001  # a laptop hosts any number of roles; the pool of cores limits who computes
_NODE_PREFIX = node_name(0).rstrip("0")


def cpus_of(role: str, runtime: RuntimeSpec) -> float:
    """CPUs that a role asks of Ray: on a joined cluster one for each CS system."""
    if runtime.address != "local" and role.startswith(_NODE_PREFIX):
        return 1.0
    return _SHARE_OF_A_CPU


def reserve(roles: Sequence[str], runtime: RuntimeSpec) -> PlacementGroup:
    """A placement group with one bundle per role, in order.

    Raises ClusterJobInitError at once when the cluster has fewer CPUs than that, and after
    ``start_timeout_s`` when they do not become free or the hosts are too few for the strategy.
    """
    bundles = [{"CPU": cpus_of(role, runtime)} for role in roles]
    asked = sum(bundle["CPU"] for bundle in bundles)
    if asked > ray.cluster_resources().get("CPU", 0):
        raise _does_not_fit("the Ray cluster has too few CPUs", asked, runtime)
    group: PlacementGroup = placement_group(bundles, strategy=runtime.placement)
    if not group.wait(runtime.start_timeout_s):
        remove_placement_group(group)
        raise _does_not_fit("the Ray cluster has no room now", asked, runtime)
    return group


def _does_not_fit(what: str, asked: float, runtime: RuntimeSpec) -> ClusterJobInitError:
    total = ray.cluster_resources().get("CPU", 0)
    free = ray.available_resources().get("CPU", 0)
    hosts = sum(node["Alive"] for node in ray.nodes())
    return ClusterJobInitError(
        what,
        where=f"runtime.address: {runtime.address}",
        value=f"{total:g} CPUs on {hosts} hosts, {free:g} of them free",
        rule=f"{asked:g} CPUs, placed {runtime.placement}: one for each CS system",
        remedy="lower num_csx, change runtime.placement, or add hosts",
    )
