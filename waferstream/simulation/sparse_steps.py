"""Which step's sparse weights a simulation charges, and how it says so."""

from __future__ import annotations

from memoryx.sparsity.step_sparsity import mean_sparsity, sparsity_of_step
from waferstream.config.sections.init import LoopConfig
from waferstream.core.errors import ConfigError
from waferstream.core.units import counted
from waferstream.machine.densities import StepSparsity
from waferstream.simulation.captured import CapturedStep


def simulated_sparsity(
    step: CapturedStep, loop: LoopConfig, sparsity_step: int | None = None
) -> tuple[StepSparsity, str]:
    """Return the sparsity to charge, and a line that says which; no line without sparse weights.

    Args:
        step: The captured step.
        loop: How long the run is; the mean is over its steps, or step 1 counts if it does not say.
        sparsity_step: The step that counts instead.

    Raises:
        ConfigError: The step is beyond the run, or no weight is sparse.
    """
    num_steps = loop.num_steps or loop.max_steps
    _check(sparsity_step, num_steps, has_sparse=bool(step.sparse))
    if not step.sparse:
        return StepSparsity(), ""
    weights = step.sparse, step.small.parameter, step.update.state_bytes
    if sparsity_step is None and num_steps:
        found, which = mean_sparsity(*weights, num_steps), f"mean over steps 1 to {num_steps:,}"
    else:
        number = sparsity_step or 1
        found, which = sparsity_of_step(*weights, number), f"step {number:,}"
    return found, sparsity_line(step, found, which)


def sparsity_line(step: CapturedStep, found: StepSparsity, which: str) -> str:
    """Return the share of zeros in the sparse weights as a line of a report."""
    sizes = {spec.name: step.small.parameter[spec.name].num_elements for spec in step.sparse}
    kept = sum(size * found.densities.get(name, 1.0) for name, size in sizes.items())
    zeros = 1 - kept / sum(sizes.values())
    return f"{zeros:.1%} zeros in {counted(len(sizes), 'sparse weight')}: {which}"


def _check(sparsity_step: int | None, num_steps: int | None, *, has_sparse: bool) -> None:
    if sparsity_step is None:
        return
    if not has_sparse:
        raise ConfigError(
            "a step of sparse weights needs a model that has some",
            code="sparsity-step-without-sparsity",
            where="--sparsity_step",
            value=sparsity_step,
            remedy="leave out --sparsity_step, or set trainer.init.sparsity",
        )
    if sparsity_step < 1 or (num_steps is not None and sparsity_step > num_steps):
        raise ConfigError(
            "the simulated step must be one of the run",
            code="sparsity-step-beyond-run",
            where="--sparsity_step",
            value=sparsity_step,
            rule="from 1 on" if num_steps is None else f"from 1 to {num_steps}",
        )
