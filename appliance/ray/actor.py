"""A role in a process of its own: the actor gives it a link and runs its message loop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import ray
import torch

from appliance.health.link_waits import LinkWaits
from appliance.health.pulse import PulseWriter
from appliance.placement.cores import CorePool, cores_of_host
from appliance.ray.heap import give_back_freed, keep_freed
from appliance.ray.hosts.far_disk import FarDisk
from appliance.ray.hosts.pulses import Presence
from appliance.ray.metrics import RoleMetrics
from appliance.spec import RuntimeSpec
from appliance.user_code import UserCode
from swarmx.links.endpoint import Address, Endpoint, aborted, stalled
from swarmx.links.link import Link, open_link
from waferstream.core.errors import ApplianceDeadlockError
from waferstream.core.messages.message_numbers import MessageNumbers
from waferstream.core.messages.messages import Abort, Envelope
from waferstream.core.roles.commands import Install
from waferstream.core.roles.role import (
    Command,
    Job,
    Report,
    Role,
    RoleContext,
    RoleSpec,
    RunningJob,
)
from waferstream.host.disk import LOCAL_DISK, Disk

_NO_LINK = Address("", "")

_PATIENCE_S = 1.0  # a role that has waited this long states for whom
LEAVE_JOB = signal.SIGUSR1
"""The signal on which a role leaves its job, if it has one: its coordinator is lost."""

_GRACE_S = 5.0  # the watch finds who keeps a role waiting before the role gives up


class HostedProcess:
    """Base of every actor of the cluster: one compute thread, and the user's code.

    ``user_code`` lets the actor import what its starter can. It arrives before any argument that
    needs it to be unpickled.
    """

    def __init__(self, user_code: UserCode) -> None:
        user_code.install()
        torch.set_num_threads(1)  # lanes are the parallelism; bits must not depend on threads
        keep_freed()
        self._pulse = PulseWriter()
        self._host_address = ""

    def presence(self, address: Address = _NO_LINK) -> Presence:
        """Return where this process is; Ray has made its log file the standard error."""
        host = ray.get_runtime_context().get_node_id()
        log_path = os.readlink("/proc/self/fd/2")
        clock_ns = time.time_ns() - time.perf_counter_ns()
        pulse = self._pulse.payload
        return Presence(host, os.getpid(), address, log_path, pulse, self._host_address, clock_ns)

    @contextmanager
    def _calling(self, what: str) -> Iterator[None]:
        """State in the pulse that a call runs."""
        self._pulse.call(what)
        try:
            yield
        except BaseException:
            self._pulse.fail()
            raise
        self._pulse.idle()


class RoleActor(HostedProcess):
    """Actor of one role. Call order: ``open``, ``connect``, then the others.

    ``open`` and ``connect`` come again after a failure, with a new session: what was sent before
    belongs to sockets that are closed, and reaches nobody.
    """

    _runtime: RuntimeSpec
    _link: Link | None = None
    _role: Role
    _cores: CorePool | None = None
    _disk: Disk = LOCAL_DISK
    _payload_bytes = 0  # of the largest payload of all programs
    _leaves = False
    _was_called = False  # since the last job
    _metrics: RoleMetrics | None = None

    def __init__(self, user_code: UserCode) -> None:
        super().__init__(user_code)
        self._numbers = MessageNumbers()
        signal.signal(LEAVE_JOB, self._leave)

    def _leave(self, _number: int, _frame: FrameType | None) -> None:
        """Let the job end before its next message: what runs now runs to its end."""
        self._leaves = True

    def load(self, specs: Sequence[RoleSpec]) -> None:
        """Load the code of roles before there is one here: unpickling their specs does."""

    def open(self, roles: Sequence[str], runtime: RuntimeSpec, session: str, home: str) -> Presence:
        """Open the link of the roles of this process, mostly one, and return where they are.

        ``home`` is the host of the user's files.
        """
        first = roles[0]
        self._runtime = runtime
        self._leaves = False
        if runtime.metrics and self._metrics is None:
            self._metrics = RoleMetrics(first)
        self._numbers.restart()
        if runtime.address != "local":
            self._host_address = str(ray.util.get_node_ip_address())
        is_home = home == ray.get_runtime_context().get_node_id()
        self._disk = LOCAL_DISK if is_home else FarDisk(home)
        arena = None if self._link is None else self._link.retire()
        self._link = open_link(
            runtime.carrier,
            first,
            session,
            host=own_address(runtime),
            start_timeout_s=runtime.start_timeout_s,
            stall_timeout_s=runtime.stall_timeout_s,
            arena=arena,
            tls=runtime.tls,
        )
        return replace(self.presence(self._link.endpoint.address), roles=tuple(roles))

    def open_cores(self) -> CorePool:
        """Return the whole pool of this host's cores; one role of each host does so for all.

        Nobody may compute.
        """
        if self._cores is None:
            self._cores = CorePool(cores_of_host(self._runtime.cores))
        else:
            self._cores.refill()
        return self._cores

    def connect(
        self, spec: RoleSpec | None, directory: Mapping[str, Address], cores: CorePool
    ) -> None:
        """Record the addresses of the other roles, and build this one, unless it goes on."""
        with self._calling("connect"):
            self._endpoint.connect(directory)
            if spec is not None:
                assert self._link is not None, "open comes first"
                if self._cores is None or not self._cores.shares_with(cores):
                    self._cores = cores
                self._role = spec.build(
                    RoleContext(self._link.arena, self._cores, self._disk, self._numbers)
                )
                self._payload_bytes = 0
            if self._payload_bytes:
                self._endpoint.limit_payloads(self._payload_bytes)

    @property
    def _endpoint(self) -> Endpoint:
        assert self._link is not None, "open comes first"
        return self._link.endpoint

    def run(self, job: Job) -> Report:
        """Run the role's part of a job: handle messages as they arrive, send answers at once.

        Raises what the role raises, and the endpoint's ApplianceRuntimeServerError when a peer is
        gone or ApplianceDeadlockError when no message arrives for ``stall_timeout_s``.
        """
        with self._calling(f"begin {job.kind} step {job.first_step}"):
            try:
                return self._run(job)
            except BaseException:
                if job.is_protected:  # nobody may wait for this role any more
                    self._endpoint.close()
                raise

    def _run(self, job: Job) -> Report:
        if self._was_called:  # tensors came or went, of other sizes than those of a step
            give_back_freed()
            self._was_called = False
        state, waits = self._role.begin(job), LinkWaits(job)
        try:
            self._converse(state, job.first_step, waits)
        finally:
            state.leave()  # the memory that it computes in belongs to the next job
        if job.is_protected:
            self._send_tallies()
        return waits.add_to(state.report())

    def _converse(self, state: RunningJob, step: int, waits: LinkWaits) -> None:
        """Handle messages as they arrive, or wait for what the role computes meanwhile."""
        self._pulse.work("start", step)
        self._send(state.start())
        while not state.finished:
            begin_ns = time.perf_counter_ns()
            envelope = self._counted_message(state)
            if envelope is None:
                self._pulse.work("kernels", step)
                self._send(state.work())
                continue
            waits.note(begin_ns, envelope)
            message = envelope.message
            if isinstance(message, Abort) or self._leaves:
                raise aborted(self._role.name)
            if not self._numbers.takes(envelope):
                continue
            step = message.step
            if self._metrics is not None:
                self._metrics.step = step
            what = f"{type(message).__name__} from {envelope.source}"
            self._pulse.work(what, step)
            self._send(state.handle(envelope))

    def _send(self, messages: Iterable[Envelope]) -> None:
        for envelope in messages:
            self._endpoint.send(self._numbers.numbered(envelope))
            if self._metrics is not None:
                self._metrics.note_sent(envelope)

    def _counted_message(self, state: RunningJob) -> Envelope | None:
        """Return the next message; count those that wait, and how long the role waits for it."""
        if self._metrics is None:
            return self._next_message(state)
        self._metrics.note_queue(self._endpoint.num_waiting())
        begin = time.monotonic()
        try:
            return self._next_message(state)
        finally:
            self._metrics.note_wait(time.monotonic() - begin)

    def _send_tallies(self) -> None:
        """Tell peers how many messages they should have by now."""
        for tally in self._numbers.tallies():
            self._endpoint.send(tally)

    def _next_message(self, state: RunningJob) -> Envelope | None:
        """Wait for the next message; after a moment state in the pulse for whom.

        Return None at once if there is none and the role computes.
        """
        if state.is_working:
            return self._waiting_message()
        limit_s = self._runtime.stall_timeout_s + _GRACE_S
        deadline = time.monotonic() + limit_s
        self._pulse.wait()
        while time.monotonic() < deadline:
            try:
                return self._endpoint.receive(_PATIENCE_S)
            except ApplianceDeadlockError:
                if self._leaves:
                    raise aborted(self._role.name) from None
                self._pulse.explain(*state.waits_for())
                self._send_tallies()
        raise stalled(self._role.name, limit_s)

    def _waiting_message(self) -> Envelope | None:
        """Return a message that has arrived already, if there is one."""
        try:
            return self._endpoint.receive(0.0)
        except ApplianceDeadlockError:
            if self._leaves:
                raise aborted(self._role.name) from None
            return None

    def do(self, command: Command[Any]) -> Any:
        """Let the role do what a command says."""
        if isinstance(command, Install):
            self._payload_bytes = max(self._payload_bytes, command.installation.payload_bytes)
            self._endpoint.limit_payloads(self._payload_bytes)
        else:
            self._was_called = True
        with self._calling(str(command)):
            return self._role.do(command)


def own_address(runtime: RuntimeSpec) -> str:
    """Return the address at which the other roles reach this host."""
    if runtime.address == "local":  # all of them are here
        return "127.0.0.1"
    return str(ray.util.get_node_ip_address())
