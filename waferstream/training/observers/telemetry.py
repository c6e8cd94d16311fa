"""The numbers that a run tells its management: of the whole, and of each emulated role."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite

from appliance.elaboration.elaborate import costed_program
from swarmx.topology import Tree
from waferstream.core.program.schedule import Rounds, Schedule
from waferstream.core.program.stream_plan import Bucket
from waferstream.core.roles.installation import Installation
from waferstream.core.roles.names import node_name, server_name
from waferstream.core.units import seconds
from waferstream.machine.attribution import StepTiming, TimedSteps
from waferstream.machine.hardware import MachineSpec
from waferstream.management.model.telemetry import Sample, Telemetry
from waferstream.training.observers.observer import TrainingLog

Number = tuple[str, float, *tuple[str, ...]]
"""A metric, its value, and the values of its labels."""


@dataclass(frozen=True)
class Streams:
    """What the roles of an emulated cluster send in one step."""

    installation: Installation
    machine: MachineSpec
    num_csx: int

    @cached_property
    def tree(self) -> Tree:
        """The switches between servers and systems."""
        return Tree(self.num_csx, self.machine.swarmx.fan_out)

    @cached_property
    def down(self) -> Counter[str]:
        """Bytes of weights by sender: servers, and switches with a copy for each child."""
        by_server = self._by_server(bucket for step in self._schedule for bucket in step.weights)
        all_bytes = by_server.total()
        copies = {each.name: all_bytes * len(each.children) for each in self.tree.switches}
        return by_server + Counter(copies)

    @cached_property
    def up(self) -> Counter[str]:
        """Bytes of gradients by sender: systems and switches, a sum in each round."""
        gradients = (bucket for step in self._schedule for bucket in step.gradients)
        all_bytes = self._by_server(gradients).total()
        senders = (*self.systems, *(switch.name for switch in self.tree.switches))
        return Counter(dict.fromkeys(senders, all_bytes))

    @property
    def systems(self) -> Sequence[str]:
        """The names of the CS systems."""
        return [node_name(index) for index in range(self.num_csx)]

    @property
    def servers(self) -> Sequence[str]:
        """The names of the weight servers that send weights."""
        return [name for name in self.down if name.startswith("wgt")]

    def link_bytes_per_s(self, role: str) -> int:
        """Return the bandwidth of the links through which a server or a switch sends weights."""
        if role in self.servers:
            return self.machine.memoryx.bandwidth_bytes_per_s
        children = {switch.name: len(switch.children) for switch in self.tree.switches}
        return self.machine.swarmx.link_bandwidth_bytes_per_s * children[role]

    @cached_property
    def _schedule(self) -> Schedule:
        return costed_program(self.installation, self.machine).schedule

    @cached_property
    def _rounds(self) -> int:
        return Rounds(self.installation.program.num_micro_batches, self.num_csx).count

    def _by_server(self, buckets: Iterable[Bucket]) -> Counter[str]:
        sent: Counter[str] = Counter()
        for bucket in buckets:
            sent[server_name(bucket.server)] += bucket.num_bytes * self._rounds
        return sent


class TelemetryMeter:
    """The sums of a run so far, and the telemetry that follows from them at a log step."""

    def __init__(self, machine: MachineSpec, num_csx: int) -> None:
        self._machine = machine
        self._num_csx = num_csx
        self._timed = TimedSteps()
        self._streams: Streams | None = None

    def count(self, log: TrainingLog) -> None:
        """Count the steps of a log step."""
        self._timed.add(log.timings)

    def telemetry(self, log: TrainingLog, training: Installation | None) -> Telemetry:
        """Return all numbers after a log step that is counted.

        Without ``training``, on a CPU or GPU, nothing is emulated, and no role has numbers.
        """
        samples = [*_of_run(log)]
        if log.timings and training is not None:
            samples += self._of_roles(log.timings[-1], self._streams_of(training))
        return Telemetry(
            samples=tuple(
                Sample(metric=name, value=value, labels=tuple(labels))
                for name, value, *labels in samples
                if isfinite(value)
            )
        )

    def _streams_of(self, training: Installation) -> Streams:
        if self._streams is None or self._streams.installation is not training:
            self._streams = Streams(training, self._machine, self._num_csx)
        return self._streams

    def _of_roles(self, newest: StepTiming, streams: Streams) -> Iterator[Number]:
        for role in streams.servers:
            for name, duration_ps in (
                ("iteration", newest.duration_ps),
                ("cross_iteration", newest.update_ps),
                ("backward_iteration", newest.backward_ps),
            ):
                yield (f"{name}_seconds", seconds(duration_ps), role)
        yield from self._of_streams(seconds(newest.duration_ps), streams)
        yield from self._of_systems(newest, streams)

    def _of_streams(self, step_s: float, streams: Streams) -> Iterator[Number]:
        for role, sent_bytes in streams.down.items():
            rate = sent_bytes / step_s
            yield ("bandwidth_bytes_per_second", rate, role, "down")
            yield ("utilisation_ratio", rate / streams.link_bytes_per_s(role), role)
        for role, sent_bytes in streams.up.items():
            yield ("bandwidth_bytes_per_second", sent_bytes / step_s, role, "up")

    def _of_systems(self, newest: StepTiming, streams: Streams) -> Iterator[Number]:
        power = self._machine.power.of_system(self._machine.system.name)
        joules = 0.0
        for index, role in enumerate(streams.systems):
            is_busy = index < newest.num_busy
            of_step = newest.attribution if is_busy else newest.spare
            so_far = self._timed.attribution if is_busy else self._timed.spare
            yield ("utilisation_ratio", of_step.shares()["compute"], role)
            for cause, spent_ps in vars(so_far).items():
                yield ("role_seconds_total", seconds(spent_ps), role, cause)
            yield ("power_watts", 1000 * power.mean_kw(of_step.shares()["compute"]), role)
            mean_kw = power.mean_kw(so_far.shares()["compute"])
            joules += 1000 * mean_kw * seconds(so_far.total_ps)
        yield ("energy_joules_total", joules)


def _of_run(log: TrainingLog) -> Iterator[Number]:
    yield ("step", log.step)
    yield ("last_step", log.step + log.steps_left)
    yield ("loss", log.losses[-1][1])
    yield ("measured_samples_per_second", log.rate)
    if log.timings:
        yield ("emulated_samples_per_second", log.emulated_rate)
