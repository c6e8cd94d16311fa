"""From settings to an answer: a pure function over the simulator, without a page or a server."""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

from appliance.spec import ClusterSpec, load_cluster
from swarmx.topology import Tree
from waferstream.baselines.gpu.workload import Workload
from waferstream.config.params import Params
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.explorer.answer import Answer, Gpus, Point, Refused, Stall, Wafer
from waferstream.explorer.command import command_of
from waferstream.explorer.knobs import (
    COARSE_STOPS,
    SLOW,
    SYSTEM,
    SYSTEMS,
    Knob,
    knobs_of,
    knobs_of_machine,
)
from waferstream.explorer.settings import Configured, Files, Settings, checked
from waferstream.explorer.steps import CapturedSteps
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.hardware.choice import choose
from waferstream.machine.intervals import Interval, step_interval
from waferstream.machine.intervals.interval import AnyInterval
from waferstream.machine.kernels import Grid
from waferstream.machine.sram import SramPlan, code_bytes
from waferstream.machine.sram.report import product_extent
from waferstream.machine.stalls import check_streams
from waferstream.reports.curve.result import CurvePoint, GpuComparison
from waferstream.reports.machine.use import NUMBER, group_layers, link_load
from waferstream.scaling.gpu_workload import workload_of
from waferstream.scaling.gpus import compare_with_gpus
from waferstream.simulation.capture import AnyDepth
from waferstream.simulation.facts import facts_of
from waferstream.simulation.study import Study, study_of
from waferstream.simulator.simulator import Simulator

CLUSTER_FILE = Path("cluster.yaml")

_KEPT_ANSWERS = 4096
_KEPT_COMPARISONS = 256
_KEPT_SIMULATORS = 2 * COARSE_STOPS

Items = tuple[tuple[str, float], ...]
"""The values of all knobs with their names, in one order."""


@dataclass(frozen=True)
class Lesson:
    """What an explorer has found, for one of another process."""

    items: Items
    answer: Answer | None
    """None where there is none."""
    captured: Mapping[str, AnyDepth | None]
    """By their names (``CapturedSteps.any_depth``)."""


class Explorer:
    """One params file on one machine, with knobs.

    Raises:
        ConfigError: The file does not train.
    """

    def __init__(self, params: Params, cluster: ClusterSpec, files: str) -> None:
        """Take the contents of files; ``files`` is how a command names them."""
        if params.trainer.fit is None:
            raise ConfigError(
                "the params file must have a section trainer.fit",
                code="simulation-without-training",
                where="trainer.fit",
                value="missing",
                rule="what is explored is a training step",
            )
        self.params, self.cluster, self.files = params, cluster, files
        self.knobs = knobs_of(params, cluster)
        self._configurations = Files(params, cluster)
        self._steps = CapturedSteps(params, cluster)
        self._simulators: deque[Simulator] = deque(maxlen=_KEPT_SIMULATORS)
        self._answers: dict[Items, Answer] = {}
        self._keeping = Lock()
        self._compared = lru_cache(_KEPT_COMPARISONS)(self._compare)

    @classmethod
    def of_files(cls, params: Path, cluster: Path | None) -> Explorer:
        """Read the files; without one of a machine it is cluster.yaml of this folder, if any.

        Raises:
            ConfigError: One of them is wrong.
        """
        found = cluster or (CLUSTER_FILE if CLUSTER_FILE.exists() else None)
        machine = ClusterSpec() if found is None else load_cluster(found)
        words = [str(params), *([] if cluster is None else ["--cluster", str(cluster)])]
        return cls(load_params(params), machine, shlex.join(words))

    @property
    def label(self) -> str:
        """The name of the model."""
        return self.params.trainer.init.model.label(self._steps.of(self.params).step.model_class)

    def answer(self, settings: Mapping[str, Any]) -> Answer:
        """Return what the simulator says for some settings; a knob left out is at rest.

        Raises:
            ConfigError: There is no such knob, or its value is not allowed.
            WaferStreamError: The step cannot be captured, or does not fit the machine.
        """
        items = self.items(settings)
        found = self._answers.get(items)
        if found is None:
            found = self._answer(dict(items))
            self._keep(items, found)
        return found

    def items(self, settings: Mapping[str, Any]) -> Items:
        """Return the values of all knobs with their names, in one order.

        Raises:
            ConfigError: There is no such knob, or its value is not allowed.
        """
        return tuple(sorted(checked(settings, self.knobs).items()))

    def moves_from(self, settings: Settings) -> Iterator[Settings]:
        """Yield settings with one knob moved: first of what takes longest, and the nearest.

        Any number of systems is in every answer.
        """
        place = checked(settings, self.knobs)

        def order(move: tuple[Knob, int]) -> tuple[int, int]:
            knob, index = move
            slowness = SLOW.index(knob.name) if knob.name in SLOW else len(SLOW)
            return slowness, abs(index - bisect_left(knob.stops, place[knob.name]))

        knobs = [knob for knob in self.knobs if knob.name != SYSTEMS]
        moves = [(knob, index) for knob in knobs for index in range(len(knob.stops))]
        for knob, index in sorted(moves, key=order):
            yield {**place, knob.name: knob.stops[index]}

    def is_captured(self, settings: Mapping[str, Any]) -> bool:
        """Tell whether an answer is there, or needs no step but those that are.

        Raises:
            ConfigError: There is no such knob, or its value is not allowed.
        """
        items = self.items(settings)
        return items in self._answers or self._steps.has(self._configured(dict(items)).params)

    def lesson(self, settings: Settings) -> Lesson:
        """Return an answer, and what was captured for it, for an explorer of another process."""
        before = set(self._steps.any_depth)
        answer = None
        with suppress(WaferStreamError):  # whoever asks is told
            answer = self.answer(settings)
        new = {key: step for key, step in self._steps.any_depth.items() if key not in before}
        return Lesson(self.items(settings), answer, new)

    def learn(self, lesson: Lesson) -> None:
        """Take what an explorer of another process has found."""
        self._steps.any_depth.update(lesson.captured)
        if lesson.answer is not None:
            self._keep(lesson.items, lesson.answer)

    def _keep(self, items: Items, answer: Answer) -> None:
        with self._keeping:  # one thread answers while another learns
            self._answers[items] = answer
            while len(self._answers) > _KEPT_ANSWERS:
                self._answers.pop(next(iter(self._answers)))

    def _configured(self, settings: Settings) -> Configured:
        return self._configurations.with_settings(settings, self.knobs)

    def _answer(self, settings: Settings) -> Answer:
        configured = self._configured(settings)
        study = self._study(configured)
        possible, refused = study.possible_curve(self._counts(int(settings[SYSTEMS])))
        program = study.costed(possible[0].num_csx).program
        bands, note = _bands(study, possible)
        sizes = sorted({study.micro_batch_size(point.num_csx) for point in possible})
        gpus = self._compared(workload_of(program), study.batch_size, study.token_share)
        return Answer(
            parameters=sum(spec.num_elements for spec in program.parameters),
            system=configured.cluster.machine.system.name,
            at_rest=self._at_rest(configured.changes.get(SYSTEM)),
            points=tuple(
                _point(study, point, band) for point, band in zip(possible, bands, strict=True)
            ),
            refused=tuple(Refused(each.num_csx, each.reason, each.code) for each in refused),
            band_note=note,
            wafers={size: _wafer(study.simulator.sram_plan(size)) for size in sizes},
            stalls={size: _stalls(study, size) for size in sizes},
            gpus=_gpus(gpus, reads_tokens=study.tokens_per_sample is not None),
            gpu_note=gpus.note,
            yaml=configured.yaml,
            command=command_of(self.files, int(settings[SYSTEMS]), configured.changes),
        )

    def _at_rest(self, kind: str | None) -> dict[str, float]:
        """Return the values of the knobs of the machine, with another kind of systems if any."""
        machine = choose(self.cluster.machine, kind, SYSTEM).machine
        return {knob.name: knob.value for knob in knobs_of_machine(machine)}

    def _counts(self, systems: int) -> list[int]:
        stops = next(knob.stops for knob in self.knobs if knob.name == SYSTEMS)
        return sorted({*map(int, stops), systems})

    def _study(self, configured: Configured) -> Study:
        params, cluster = configured.params, configured.cluster
        stated = params.trainer.init.backend.cluster_config.max_wgt_servers
        servers = stated or cluster.machine.memoryx.weight_servers
        kept = self._steps.of(params)
        study = study_of(params, cluster, kept.step, facts_of(params.trainer), servers)
        return replace(study, simulator=self._shared(replace(study.simulator, plans=kept.plans)))

    def _shared(self, simulator: Simulator) -> Simulator:
        """Return one of the newest simulators if it is equal, for what it has found already."""
        for each in self._simulators:
            if each.program is simulator.program and each == simulator:
                return each
        self._simulators.append(simulator)
        return simulator

    def _compare(
        self, workload: Workload | None, batch_size: int, token_share: float
    ) -> GpuComparison:
        power = self.cluster.machine.power
        return compare_with_gpus(workload, batch_size, power, share=token_share)


def _bands(
    study: Study, points: Sequence[CurvePoint]
) -> tuple[list[tuple[float, float] | None], str]:
    """Return the factors of each point's intervals, and a note where they are of another machine.

    Nobody has measured a machine with other numbers: its band is that of the published one.
    """
    machine = study.simulator.machine
    program = study.costed(points[0].num_csx).program

    def found(spec: MachineSpec) -> list[AnyInterval]:
        batches = ((study.batch(point.num_csx), point.num_csx) for point in points)
        return [step_interval(spec, program, batch, count) for batch, count in batches]

    own = found(machine)
    unknown = next((each for each in own if not isinstance(each, Interval)), None)
    shown = own if unknown is None else found(machine.published)
    note = "" if unknown is None else f"{unknown.reason[0].upper()}{unknown.reason[1:]}. "
    factors = [(e.half, e.nine_tenths) if isinstance(e, Interval) else None for e in shown]
    if note and all(factors):
        note += f"The band is that of a {machine.system.name} as published."
    return factors, note


def _point(study: Study, point: CurvePoint, band: tuple[float, float] | None) -> Point:
    prediction, energy = point.prediction, point.energy
    assert prediction is not None, "of a simulated point"
    assert energy is not None
    machine, count = study.simulator.machine, point.num_csx
    load = link_load(study.costed(count), machine, count, point.emulated.step_ps)
    levels = Counter(switch.level for switch in Tree(count, machine.swarmx.fan_out).switches)
    per_million = energy.per_million_tokens or energy.per_million_samples
    shares = point.emulated.attribution_ps.shares()
    return Point(
        systems=count,
        micro_batch=study.micro_batch_size(count),
        rounds=prediction.num_rounds,
        samples_per_s=point.emulated.samples_per_s,
        tokens_per_s=prediction.tokens_per_s,
        step_ps=point.emulated.step_ps,
        efficiency=point.efficiency,
        utilisation=prediction.utilisation,
        causes={cause: share for cause, share in shares.items() if share},
        band=band,
        kw=energy.power_kw,
        kwh_per_million=per_million.kwh,
        swarmx_nodes=prediction.swarmx_nodes,
        switches=tuple(levels[level] for level in sorted(levels)),
        down=load.down,
        up=load.up,
    )


def _wafer(plan: SramPlan) -> Wafer:
    program, peak, fabric = plan.program, plan.peak, plan.wafer.fabric
    samples, at = program.micro_batch_size, program.segments[plan.peak.segment]
    grid = Grid.whole(fabric)
    repeated = [segment for segment in program.segments if NUMBER.search(segment.layer)]
    extents = {s.layer: product_extent(s, grid) for s in repeated or program.segments}
    layer = max(extents, key=lambda name: extents[name])
    return Wafer(
        columns=fabric.columns,
        rows=fabric.rows,
        used=extents[layer],
        layer=layer,
        recomputed=len(plan.recomputed),
        capacity_bytes=plan.wafer.sram_bytes,
        pieces={
            "code": code_bytes(plan.wafer),
            "kept for the backward pass": peak.stash.of(samples),
            "working set": peak.working.of(samples),
            "streams": plan.buffers[peak.segment],
        },
        peak=f"{at.layer} {at.phase}",
    )


def _stalls(study: Study, size: int) -> tuple[Stall, ...]:
    """Return the no-stall condition of the layers, without the search for a share of zeros."""
    simulator = study.simulator
    costed = simulator.costed(size, size)
    checks = check_streams(
        costed.program, costed.schedule, costed.costs, simulator.machine, costed.densities,
        costed.paged,
    )  # fmt: skip
    return tuple(
        Stall(
            group.layers, group.check.phase, group.count, group.stream_ps, group.check.compute_ps,
            group.check.bound, group.remedy,
        )
        for group in group_layers(checks, size, simulator.largest_micro_batch)
    )  # fmt: skip


def _gpus(comparison: GpuComparison, *, reads_tokens: bool) -> tuple[Gpus, ...]:
    """Return the fastest parallelism at each number of each kind of GPU."""
    best: dict[str, dict[int, tuple[float, float | None]]] = {}
    for curve in comparison.curves:
        found = best.setdefault(curve.gpu, {})
        for point, interval in zip(curve.points, curve.intervals, strict=True):
            rate = point.tokens_per_s if reads_tokens else point.samples_per_s
            if point.fits and rate > found.get(point.gpus, (0.0, None))[0]:
                factor = interval.nine_tenths if isinstance(interval, Interval) else None
                found[point.gpus] = rate, factor
    return tuple(
        Gpus(name, tuple((gpus, *found[gpus]) for gpus in sorted(found)))
        for name, found in best.items()
        if found
    )
