"""A role in a process of its own: a thin shell that gives it a link and runs its loop."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import ray
import torch

from appliance.cores import CorePool, cores_of_host
from appliance.ray.memory import keep_memory
from appliance.role_loop import run_role
from appliance.spec import RuntimeSpec
from swarmx.links.link import Link, open_link
from wsc.core.role import Job, Report, Role, RoleContext, RoleSpec


@dataclass(frozen=True)
class Presence:
    """Where a role has come up. ``host`` is Ray's id of the host, ``address`` is for the link."""

    host: str
    pid: int
    address: str
    log_path: str


class HostedProcess:
    """What every actor of the cluster starts as: one thread, and the user's search path.

    ``search_path`` is ``sys.path`` of the process that starts the actor: what can be imported
    there can be imported here. It comes before anything that needs it to be unpickled.
    """

    def __init__(self, search_path: Sequence[str]) -> None:
        sys.path.extend(path for path in search_path if path not in sys.path)
        torch.set_num_threads(1)  # lanes are the parallelism; bits must not depend on threads
        keep_memory()

    def log_path(self) -> str:
        """The file that Ray has made this process' standard error."""
        return os.readlink("/proc/self/fd/2")


class RoleActor(HostedProcess):
    """Hosts one role. Called in this order: ``open``, ``connect``, then ``run`` and ``call``."""

    _runtime: RuntimeSpec
    _link: Link
    _role: Role

    def open(self, role: str, runtime: RuntimeSpec, session: str) -> Presence:
        """Open the link and say where it is."""
        self._runtime = runtime
        self._link = open_link(
            runtime.link,
            role,
            session,
            host=ray.util.get_node_ip_address(),
            start_timeout_s=runtime.start_timeout_s,
            stall_timeout_s=runtime.stall_timeout_s,
        )
        host = ray.get_runtime_context().get_node_id()
        return Presence(host, os.getpid(), self._link.endpoint.address, self.log_path())

    def open_cores(self) -> CorePool:
        """The pool of this host's cores; one role of each host opens it for all of them."""
        return CorePool(cores_of_host(self._runtime.cores))

    def connect(self, spec: RoleSpec, directory: Mapping[str, str], cores: CorePool) -> None:
        """Learn where the other roles are, and build this one."""
        self._link.endpoint.connect(directory)
        self._role = spec.build(RoleContext(self._link.arena, cores))

    def run(self, job: Job) -> Report:
        """Do the role's part of a job."""
        return run_role(self._role, self._link.endpoint, job, self._runtime.stall_timeout_s)

    def call(self, method: str, *args: Any) -> Any:
        """Call a method of the role, as of ``Roles.call``."""
        return attrgetter(method)(self._role)(*args)
