"""A captured step on a stated machine: points of a curve, and one point in detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from appliance.spec import ClusterSpec
from waferstream.config.params import Params
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError
from waferstream.core.program.micro_batches import (
    FILL_WAFER,
    Cut,
    MicroBatchPolicy,
    check_groups,
    cuts_groups,
    explored_sizes,
    rounds_of,
)
from waferstream.core.program.program import BYTES_PER_ELEMENT, Program
from waferstream.machine.attribution import TimedSteps
from waferstream.machine.energy import energy_use
from waferstream.machine.intervals import start_up_interval
from waferstream.machine.sram import data_bytes, describe
from waferstream.machine.start_up import sizes_tried, start_up
from waferstream.reports.curve.result import (
    CurvePoint,
    FilledWafer,
    PointDetail,
    PredictedStep,
    RefusedPoint,
    efficiencies,
)
from waferstream.reports.economics import TrainingBill
from waferstream.reports.machine.use import MachineUse, group_layers
from waferstream.reports.run.summary import Emulated
from waferstream.scaling.sweep import PLAIN_REQUEST, SimulationRequest
from waferstream.simulation.captured import CapturedStep
from waferstream.simulation.facts import Facts
from waferstream.simulation.sparse_steps import simulated_sparsity
from waferstream.simulator.costed_program import CostedProgram
from waferstream.simulator.exploration import explore, fastest
from waferstream.simulator.simulator import Prediction, Simulator
from waferstream.workload.packing import Packing


@dataclass(frozen=True)
class Study:
    """One model and one global batch on clusters of one kind of machine."""

    simulator: Simulator
    batch_size: int
    """Samples of a step over all systems or, where ``weak``, of each system."""
    tokens_per_sample: int | None
    policy: MicroBatchPolicy
    weak: bool = False
    """Whether the batch grows with the systems."""
    sparsity: str = ""
    """Which zeros of sparse weights are charged, as a line of the report; empty without any."""
    model_class: str = ""
    """Name of the class of the model."""
    group_of_samples: int = 1
    """Samples that share a loss, which no micro-batch may cut."""
    num_steps: int | None = None
    """Steps of the run; None where the configuration does not say."""
    packing: Packing | None = None
    """How full the sequences are; None where every place counts as a token."""

    def batch(self, num_csx: int) -> int:
        """Return the samples of a step over all systems."""
        return self.batch_size * num_csx if self.weak else self.batch_size

    def curve(self, counts: Sequence[int]) -> tuple[CurvePoint, ...]:
        """Return a point for each number of systems, which must ascend.

        Raises:
            ConfigError: The batch cannot be shared among the systems.
            ApplianceResourceExhausted: The model fits no wafer, or not into MemoryX.
        """
        return _with_efficiencies([self._point(count) for count in counts])

    def possible_curve(
        self, counts: Sequence[int]
    ) -> tuple[tuple[CurvePoint, ...], tuple[RefusedPoint, ...]]:
        """Return the points of a curve, and the numbers of systems that can have none.

        Raises:
            WaferStreamError: There is no point at all; the error of the last number of systems.
        """
        points: list[CurvePoint] = []
        refused: list[RefusedPoint] = []
        for count in counts:
            try:
                points.append(self._point(count))
            except (ConfigError, ApplianceResourceExhausted) as error:
                if not points and count == counts[-1]:
                    raise
                refused.append(RefusedPoint(count, error.what, error.code))
        return _with_efficiencies(points), tuple(refused)

    def micro_batch_size(self, num_csx: int) -> int:
        """Return the samples of a micro-batch, as the policy chooses them.

        Raises ConfigError where a run would refuse the batch, the systems or the size.
        """
        size = self._chosen_size(num_csx)
        check_groups(Cut.of(self.batch(num_csx), size, num_csx), self.group_of_samples)
        return size

    def takes_one_group(self, num_csx: int) -> bool:
        """Tell whether a micro-batch is a single group of samples, or is compared with others.

        On a number of systems that cannot share the batch, there is none.
        """
        batch, group, allowed = self.batch(num_csx), self.group_of_samples, self.policy.range
        try:
            if allowed is not None:
                return group in explored_sizes(batch, allowed, num_csx, group)
            return self.policy.size(batch, num_csx, self.simulator.largest_micro_batch) == group
        except ConfigError:
            return False

    def _sizes_tried(self, num_csx: int) -> tuple[int, ...]:
        largest = self.simulator.largest_micro_batch
        return sizes_tried(self.policy, self.batch(num_csx), num_csx, largest)

    def _chosen_size(self, num_csx: int) -> int:
        batch = self.batch(num_csx)
        if self.policy.range is None:
            self.policy.check(batch, num_csx, self.group_of_samples)
            return self.policy.size(batch, num_csx, self.simulator.largest_micro_batch)
        sizes = explored_sizes(batch, self.policy.range, num_csx, self.group_of_samples)
        trials = explore(self.simulator, batch, sizes, num_csx)
        return fastest(trials).micro_batch_size

    def effective_batch(self, num_csx: int) -> str:
        """Return one line with batch, micro-batches and policy."""
        return self.policy.describe(self.costed(num_csx).program.cut)

    def filled(self, point: CurvePoint) -> FilledWafer | None:
        """Return the step of a point with larger micro-batches, None if it would not be faster."""
        batch = self.batch(point.num_csx)
        size = FILL_WAFER.size(batch, point.num_csx, self.simulator.largest_micro_batch)
        if point.micro_batch_size is None or size <= point.micro_batch_size:
            return None
        if cuts_groups(Cut.of(batch, size, point.num_csx), self.group_of_samples):
            return None
        step_ps = self.simulator.predict(batch, size, point.num_csx).timing.duration_ps
        if step_ps >= point.emulated.step_ps:
            return None
        rounds = rounds_of(batch, point.num_csx, size)
        return FilledWafer(size, rounds, point.emulated.step_ps / step_ps)

    def _point(self, num_csx: int) -> CurvePoint:
        machine = self.simulator.machine
        machine.check_systems(num_csx)
        size = self.micro_batch_size(num_csx)
        prediction = self.simulator.predict(self.batch(num_csx), size, num_csx)
        nodes = self.simulator.swarmx_nodes(num_csx)
        sram_plan = self.simulator.sram_plan(size)
        timed = TimedSteps.of([prediction.timing])
        return CurvePoint(
            num_csx=num_csx,
            micro_batch_size=size,
            emulated=Emulated.of(timed),
            efficiency=1.0,
            prediction=PredictedStep(
                num_rounds=rounds_of(self.batch(num_csx), num_csx, size),
                tokens_per_s=self._tokens_per_s(prediction),
                flops_per_s=prediction.flops_per_s,
                utilisation=prediction.flops_per_s / (num_csx * machine.system.peak_flops_per_s),
                sram_peak_bytes=sram_plan.peak_bytes,
                recomputed_segments=len(sram_plan.recomputed),
                overflow=sram_plan.overflow,
                swarmx_nodes=nodes,
                steps_ps=prediction.steps_ps,
            ),
            energy=energy_use(machine, num_csx, nodes, timed, self._mean_tokens, self.num_steps),
        )

    def _tokens_per_s(self, prediction: Prediction) -> float | None:
        tokens = self._mean_tokens
        return None if tokens is None else prediction.samples_per_s * tokens

    @property
    def _mean_tokens(self) -> float | None:
        """Tokens of a sample without padding; None for a model that does not read tokens."""
        if self.tokens_per_sample is None or self.packing is None:
            return self.tokens_per_sample
        return self.tokens_per_sample * self.token_share

    @property
    def token_share(self) -> float:
        """Share of the places of a sequence that hold a token, and no padding."""
        return 1.0 if self.packing is None else self.packing.share

    def costed(self, num_csx: int) -> CostedProgram:
        """Return the step with its costs, as the timing model executes it."""
        size = self.micro_batch_size(num_csx)
        return self.simulator.costed(self.batch(num_csx), size, num_csx)

    def use(self, point: CurvePoint) -> MachineUse:
        """Return the share of the machine that the step of a point uses."""
        size = self.micro_batch_size(point.num_csx)
        return MachineUse.of(
            self.costed(point.num_csx),
            self.simulator.machine,
            point.num_csx,
            point.emulated.step_ps,
            self.simulator.sram_plan(size),
            self.simulator.streams(self.batch(point.num_csx), size),
        )

    def detail(self, num_csx: int, bill: TrainingBill | None = None) -> PointDetail:
        """Return memory, start-up and layers of one point; its ``bill`` is included."""
        costed, machine = self.costed(num_csx), self.simulator.machine
        program, size = costed.program, self.micro_batch_size(num_csx)
        num_elements = _num_elements(program)
        copies = num_elements + program.num_elements(program.trained)
        resident_bytes = (
            BYTES_PER_ELEMENT[program.stream_dtype] * copies
            + costed.tiers.masters.num_bytes
            + costed.tiers.state.num_bytes
        )
        return PointDetail(
            num_csx=num_csx,
            tiers=costed.tiers,
            wafer=describe(machine.system),
            sram_capacity_bytes=data_bytes(machine.system),
            resident_bytes=resident_bytes,
            fits_sram=resident_bytes <= data_bytes(machine.system),
            start_up=start_up(machine, program, self._sizes_tried(num_csx)),
            start_up_interval=start_up_interval(machine, program, num_csx),
            layers=group_layers(
                self.simulator.streams(self.batch(num_csx), size),
                size,
                self.simulator.largest_micro_batch,
            ),
            bill=bill,
            effective_batch=self.effective_batch(num_csx),
        )


def _with_efficiencies(points: Sequence[CurvePoint]) -> tuple[CurvePoint, ...]:
    counts = [point.num_csx for point in points]
    found = efficiencies(counts, [point.emulated.samples_per_s for point in points])
    return tuple(
        replace(point, efficiency=efficiency)
        for point, efficiency in zip(points, found, strict=True)
    )


def study_of(
    params: Params,
    cluster: ClusterSpec,
    step: CapturedStep,
    facts: Facts,
    num_servers: int,
    request: SimulationRequest = PLAIN_REQUEST,
) -> Study:
    """Return the study of a captured step on the machine of a cluster.

    Args:
        params: The training configuration.
        cluster: The cluster with the machine.
        step: The captured step.
        facts: What model and data of the configuration say.
        num_servers: Number of weight servers.
        request: What the command asks for.

    Raises ConfigError for a step of sparse weights that the run does not have.
    """
    assert params.trainer.fit is not None, "checked when the step was captured"
    sparsity, line = simulated_sparsity(step, params.trainer.init.loop, request.sparsity_step)
    simulator = Simulator(
        step.program,
        cluster.machine,
        num_servers,
        update=step.update,
        waits_for_all=step.waits_for_all,
        sparsity=sparsity,
        sparse=step.sparse,
        loading=facts.loading,
        one_group=step.one_group,
        allows_overflow=request.allows_overflow,
    )
    return Study(
        simulator,
        params.trainer.fit.train_dataloader.batch_size,
        step.tokens_per_sample,
        params.trainer.init.micro_batch_policy("train"),
        request.weak,
        line,
        step.model_class,
        facts.group_of_samples,
        params.trainer.init.loop.num_steps or params.trainer.init.loop.max_steps,
        facts.packing,
    )


def _num_elements(program: Program) -> int:
    return sum(spec.num_elements for spec in program.parameters)
