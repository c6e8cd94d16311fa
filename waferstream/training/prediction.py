"""How long a whole run takes on the emulated machine, at each number of systems that it may have.

The step is compiled once: its micro-batches are those of all systems that the run may have, so that
fewer of them run the same program, and only the clock of the cluster is another one.
"""

from __future__ import annotations

from itertools import chain

from cstorch.session.session import Session
from memoryx.optim.cost import state_bytes_per_element
from waferstream.compiler.compiled import Compiled
from waferstream.compiler.derivation.scale import ScalableProgram
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import Loading, Program
from waferstream.core.units import seconds
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.intervals import Interval, step_interval
from waferstream.machine.start_up import checkpoint_bytes, checkpoint_ps, start_up
from waferstream.management.model.workflow import Prediction
from waferstream.simulator.simulator import Simulator
from waferstream.training.launch import Reporter
from waferstream.training.run_plan import RunPlan

_SIZES_APART = 64
"""Up to so many systems each number is predicted, beyond them their multiples by powers of two."""


def predict_when_compiled(session: Session, plan: RunPlan, reporter: Reporter) -> None:
    """Tell the management how long a run takes, as soon as its step is compiled."""

    def tell(compiled: Compiled, optimizer: OptimizerSpec | None, loading: Loading) -> None:
        if compiled.program.kind.updates:
            config, size = session.settings.cluster_config, session.settings.size()
            about = (compiled.program, optimizer, loading, config.cluster.machine)
            reporter.predicted(prediction_of(plan, *about, size.num_servers, config.cut_csx))

    session.when_compiled = tell


def prediction_of(
    plan: RunPlan,
    program: Program,
    optimizer: OptimizerSpec | None,
    loading: Loading,
    machine: MachineSpec,
    num_servers: int,
    most_csx: int,
) -> Prediction:
    """Predict a run from its first command to its last step, with its checkpoints.

    Compiling is a job of its own and does not count, nor do evaluations. The error is that of
    the most systems, which are the farthest from published runs.

    Args:
        plan: The run.
        program: Its step, cut for ``most_csx`` systems.
        optimizer: The update at the end of the step.
        loading: The loader of its batches.
        machine: The machine.
        num_servers: Weight servers.
        most_csx: Systems that the run has at most.
    """
    step = ScalableProgram.at_one_size(program)
    simulator = Simulator.of(step, optimizer, machine, num_servers, loading)
    elements = sum(spec.num_elements for spec in program.parameters)
    begin = start_up(machine, program)
    state_bytes = state_bytes_per_element(optimizer, program.parameter)
    saving_ps = checkpoint_ps(machine.system.hosts, checkpoint_bytes(elements, state_bytes))
    rest_ps = begin.total_ps + len(plan.checkpoint_steps) * saving_ps
    return Prediction(
        seconds={
            num_csx: seconds(_steps_ps(simulator, program, num_csx, plan) + rest_ps)
            for num_csx in sizes(most_csx)
        },
        error=_error_of(program, machine, most_csx),
    )


def sizes(most_csx: int) -> list[int]:
    """Return the numbers of systems that are predicted, up to a number, which is one of them."""
    doubled = (_SIZES_APART << power for power in range(1, most_csx.bit_length()))
    asked = chain(range(1, _SIZES_APART + 1), doubled, [most_csx])
    return sorted({each for each in asked if each <= most_csx})


def _steps_ps(simulator: Simulator, program: Program, num_csx: int, plan: RunPlan) -> int:
    """Return the time of all steps: the first ones, then the one that comes again and again."""
    found = simulator.predict(program.batch_size, program.micro_batch_size, num_csx)
    first = found.steps_ps[: plan.end - plan.start]
    return sum(first) + (plan.end - plan.start - len(first)) * found.timing.duration_ps


def _error_of(program: Program, machine: MachineSpec, num_csx: int) -> float | None:
    """Return the share by which nine of ten real machines differ at most, None if unknown."""
    interval = step_interval(machine, program, program.batch_size, num_csx)
    return interval.nine_tenths - 1 if isinstance(interval, Interval) else None
