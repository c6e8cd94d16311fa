"""Starts clusters on Ray, one after the other, on the hosts that answer then."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import ray

from appliance.coordinator import Coordinator
from appliance.placement import Placer
from appliance.ray.connection import enter, lost_process
from appliance.ray.coordinator import RayCluster
from appliance.ray.survey import placer_on, survey, with_free_cpus
from appliance.spec import RuntimeSpec
from wsc.core.role import RoleSpec


class Build(Protocol):
    """Returns the specs of all roles for a number of systems, on the hosts of a placer."""

    def __call__(self, num_csx: int, *, placer: Placer | None = None) -> Sequence[RoleSpec]: ...


class RayStarter:
    """Starts clusters of one specification.

    With ``keeps_ray`` Ray stays for the next cluster until ``close``, unless one of its own
    processes has died.
    """

    def __init__(
        self,
        make: Callable[..., Coordinator],
        build: Build,
        num_csx: int,
        runtime: RuntimeSpec,
        fan_out: int,
        *,
        keeps_ray: bool,
    ) -> None:
        self._make = make
        self._build = build
        self._num_csx = num_csx
        self._runtime = runtime
        self._fan_out = fan_out
        self._keeps_ray = keeps_ray
        self._owns_ray = False

    def start(self) -> RayCluster:
        """Start a cluster; ClusterJobInitError if it does not start."""
        if self._keeps_ray and lost_process() is not None:
            ray.shutdown()
        self._owns_ray = enter(self._runtime) or self._owns_ray
        # Nobody can take its names before it does.
        session = f"waferstream-{secrets.token_hex(16)}"
        try:
            placer = self._placer()
            build = partial(self._build, placer=placer)
            return RayCluster(
                partial(self._make, build=build),
                build(self._num_csx),
                self._runtime,
                session,
                placer,
                owns_ray=self._owns_ray and not self._keeps_ray,
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Shut down Ray if it was started here. Idempotent."""
        if self._owns_ray:
            ray.shutdown()
            self._owns_ray = False

    def _placer(self) -> Placer:
        """Return what places the roles on the hosts that answer now."""
        hosts = survey(self._runtime)
        if self._runtime.address != "local":
            hosts = with_free_cpus(hosts, self._num_csx)
        return placer_on(hosts, self._runtime, self._fan_out)
