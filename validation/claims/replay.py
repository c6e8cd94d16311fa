"""Replay a claim: run what its command runs, without files and pictures."""

from __future__ import annotations

import shlex
from pathlib import Path

from validation.claims.claim import Claim, Outcome, Speeds, Verdict, judge
from waferstream.cli.arguments import Arguments, parse_arguments
from waferstream.cli.run import cluster_of
from waferstream.config.params import Params
from waferstream.config.phases import load_phases, only_phase
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError
from waferstream.core.units import format_count
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.intervals import AnyInterval, step_interval
from waferstream.machine.published import comparisons, machine_named
from waferstream.reports.curve.result import CurvePoint
from waferstream.scaling.sweep import SimulationRequest, counts_of
from waferstream.simulation.capturing import captured_studies
from waferstream.simulation.session import choices_of
from waferstream.simulation.study import Study

_BYTES_PER_PARAMETER = 16
"""Masters, gradient sums and the two moments of Adam, in fp32."""

_DAY_S = 86_400


def replay(claim: Claim, folder: Path) -> Outcome:
    """Return what the clock says to a claim.

    Args:
        claim: The claim.
        folder: Where captured steps are kept, for claims of the same model.
    """
    words = shlex.split(claim.command)
    if words[0] == "waferstream":
        name = words[-1]
        of_capacity = claim.kind == "capacity"
        return _capacity(claim, name) if of_capacity else _figure(claim, name)
    return _simulated(claim, parse_arguments([*words[2:], "--model_dir", f"{folder}"], Path()))


def _simulated(claim: Claim, arguments: Arguments) -> Outcome:
    request = arguments.simulation
    assert request is not None, "a claim is replayed by a simulation"
    params = only_phase(load_phases(arguments.params, arguments.overrides()), arguments.params)
    num_csx = params.trainer.init.backend.cluster_config.num_csx
    studies = _studies(params, arguments, request, num_csx)
    try:
        points = [study.curve(_ends(request, num_csx)) for study in studies]
    except (ApplianceResourceExhausted, ConfigError) as error:
        return Outcome("does not fit", "impossible", error.what)
    last = _Run(studies[-1], points[-1][-1])
    match claim.kind:
        case "days":
            assert request.token_budget is not None
            return _days(claim, last, request.token_budget)
        case "speed_up":
            return _speed_up(claim, _Run(studies[0], points[0][0]), last)
        case "hidden":
            return _hidden(claim, last)
        case _:
            memory = last.machine.memoryx.dram_bytes / 1e12
            return Outcome("fits", "right", f"in {memory:g} TB of MemoryX")


def _studies(
    params: Params, arguments: Arguments, request: SimulationRequest, num_csx: int
) -> list[Study]:
    cluster = cluster_of(arguments)
    clusters = [
        cluster.model_copy(update={"machine": choice.machine})
        for choice in choices_of(cluster.machine, request.machines)
    ]
    return captured_studies(params, clusters, _ends(request, num_csx), request)


def _ends(request: SimulationRequest, num_csx: int) -> tuple[int, ...]:
    """Return the numbers of systems that a command names, not those between."""
    return counts_of(request, num_csx) if request.sweep is not None else (num_csx,)


class _Run:
    """A model on a number of systems, as predicted."""

    def __init__(self, study: Study, point: CurvePoint) -> None:
        assert point.prediction is not None
        self.shares = point.emulated.attribution_ps.shares()
        self.machine: MachineSpec = study.simulator.machine
        self.systems = point.num_csx
        self.tokens_per_s = point.prediction.tokens_per_s or 0.0
        self.flops_per_token = point.prediction.flops_per_s / self.tokens_per_s
        self.peak = point.num_csx * self.machine.system.peak_flops_per_s
        self._study = study

    @property
    def interval(self) -> AnyInterval:
        """The interval of the throughput."""
        study, systems = self._study, self.systems
        program = study.costed(systems).program
        return step_interval(self.machine, program, study.batch(systems), systems)


def _days(claim: Claim, run: _Run, tokens: float) -> Outcome:
    """Compare the days in which tokens are trained."""
    most = run.peak / run.flops_per_token
    claimed = tokens / (claim.value * _DAY_S)
    verdict, why = judge(
        Speeds(claimed, run.tokens_per_s, most, "the dense peak"),
        run.interval,
    )
    return Outcome(f"{tokens / run.tokens_per_s / _DAY_S:,.1f} days", verdict, why)


def _speed_up(claim: Claim, first: _Run, last: _Run) -> Outcome:
    """Compare how many times as fast the last machine is as the first."""
    predicted = last.tokens_per_s / first.tokens_per_s
    speeds = Speeds(claim.value, predicted, last.peak / first.peak, "the ratio of the dense peaks")
    verdict, why = judge(speeds, last.interval)
    return Outcome(f"{predicted:.1f} times", verdict, why)


def _hidden(claim: Claim, run: _Run) -> Outcome:
    """Compare the share of a step in which systems wait for weights."""
    share = run.shares["weights"]
    verdict: Verdict = "right" if share <= claim.value else "outside the interval"
    causes = ", ".join(f"{cause} {part:.1%}" for cause, part in run.shares.items() if part > 0.0005)
    return Outcome(f"{share:.1%} of a step", verdict, f"a step is {causes}")


def _capacity(claim: Claim, name: str) -> Outcome:
    """Compare the parameters that memory holds."""
    memory = machine_named(name).memoryx
    held = (memory.dram_bytes + memory.flash_bytes) / _BYTES_PER_PARAMETER
    why = f"{_BYTES_PER_PARAMETER} bytes for each: masters, gradient sums and the state of Adam"
    verdict: Verdict = "right" if claim.value <= held else "impossible"
    return Outcome(f"{format_count(held)} parameters", verdict, why)


def _figure(claim: Claim, name: str) -> Outcome:
    """Compare a number of the machine with that of the clock."""
    compared = next(each for each in comparisons(name) if each.figure.what == claim.figure)
    found, unit = compared.on_the_clock, compared.figure.unit
    assert found is not None, claim.figure
    if claim.value <= found:
        return Outcome(f"{found:.3g} {unit}", "right", f"the {claim.figure} of the clock")
    why = f"needs {claim.value / found:.1f} times the {claim.figure} of the clock"
    return Outcome(f"{found:.3g} {unit}", "impossible", why)
