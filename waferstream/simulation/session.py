"""One simulation from command line to files.

model_dir/simulation/
    simulation.json     the curve (waferstream.reports.curve.result has the schema)
    simulation.png      throughput, and emulated step time by cause
    simulation.html     all of it on one page
    gpus.png            emulated throughput beside modelled throughput of GPU clusters
    wafer.png           SRAM of a wafer over its grid and over a step
    step_trace.json     one step for ui.perfetto.dev
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from appliance.spec import ClusterSpec
from waferstream.config.params import Params
from waferstream.core.errors import ConfigError
from waferstream.core.program.program import Program
from waferstream.core.system_errors import remedy_of
from waferstream.host.terminal import line_width
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.hardware.choice import Choice, choose, contradiction
from waferstream.machine.intervals import step_interval
from waferstream.reports.curve.page import write_curve
from waferstream.reports.curve.result import (
    CurvePoint,
    CurveResult,
    GpuComparison,
    SimulationInfo,
)
from waferstream.reports.curve.text import headline
from waferstream.reports.economics import PriceSpec, TrainingBill, training_bill
from waferstream.reports.host import git_commit
from waferstream.reports.run.summary import ModelSummary
from waferstream.scaling.gpu_workload import workload_of
from waferstream.scaling.gpus import compare_with_gpus
from waferstream.scaling.sweep import SimulationRequest, counts_of
from waferstream.simulation.capturing import capturing
from waferstream.simulation.explanation import explain
from waferstream.simulation.facts import Facts
from waferstream.simulation.output import draw_wafer, simulation_text, trace_step
from waferstream.simulation.study import Study
from waferstream.training.trace_request import TraceRequest
from waferstream.version import VERSION

CURVE_NAME = "simulation"
_FLAGS = "--system or --machine"

log = logging.getLogger("waferstream")


def run_simulation(
    params: Params,
    request: SimulationRequest,
    cluster: ClusterSpec,
    trace: TraceRequest | None,
    command: str = "",
) -> CurveResult:
    """Simulate as ``--simulate`` requests, write all files, print and return the result.

    Raises:
        WaferStreamError: The configuration is wrong, or the model does not fit the machine.
    """
    if trace is not None:
        trace.check()
    requested = params.trainer.init.backend.cluster_config.num_csx
    counts = counts_of(request, requested)
    folder = _make_folder(params.trainer.init.model_dir)
    choices = choices_of(cluster.machine, request.machines)
    machines = [priced(cluster, choice.machine, request.prices) for choice in choices]
    studies = checked_studies(params, machines, counts, request)
    first = studies[0]
    _check_budget(request, reads_tokens=first.tokens_per_sample is not None)
    labels = labels_of(params, first)
    result, *compared = [
        with_note(
            simulate_study(
                study, labels, counts, requested, request, params if study is first else None
            ),
            choice.note,
        )
        for study, choice in zip(studies, choices, strict=True)
    ]
    result = replace(result, others=tuple(compared))
    if request.measures_zeros:
        from waferstream.simulation.activation_zeros import zeros_of  # noqa: PLC0415  (torch)

        result = replace(result, zeros=zeros_of(params))
    write_simulation(folder, result, first, None if trace is None else trace.path, command)
    text = simulation_text(result, line_width())
    if request.explains:
        text = f"{text}\n\n{explain(first, result.detailed.num_csx)}"
    print(f"\n{text}\n\n{folder}\n{folder / CURVE_NAME}.html", flush=True)
    return result


def write_simulation(
    folder: Path, result: CurveResult, study: Study, trace: Path | None, command: str = ""
) -> None:
    """Write all files of a simulation; the trace to ``trace`` if that is given."""
    assert result.simulation is not None
    detailed = result.simulation.detail.num_csx
    write_curve(folder, CURVE_NAME, result, study.use(result.detailed), command)
    draw_wafer(folder / "wafer.png", study, headline(result), detailed)
    trace_step(trace or folder / "step_trace.json", study, detailed)


def checked_studies(
    params: Params,
    clusters: Sequence[ClusterSpec],
    counts: Sequence[int],
    request: SimulationRequest,
) -> list[Study]:
    """Check the request, capture the step, and return its study on each machine.

    Raises:
        WaferStreamError: The request is wrong, or the step cannot be captured.
    """
    requested = params.trainer.init.backend.cluster_config.num_csx
    with capturing(params, clusters[0]) as capture:
        check_request(params, request, requested, capture.facts)
        return [capture.study(params, cluster, counts, request) for cluster in clusters]


def check_request(params: Params, request: SimulationRequest, num_csx: int, facts: Facts) -> None:
    """Check the request before the capture, which may take minutes.

    Raises:
        ConfigError: The batch cannot be shared among ``num_csx`` systems, or a token budget is
            given for a registered model that does not read tokens.
    """
    init, fit = params.trainer.init, params.trainer.fit
    if fit is not None:
        policy = init.micro_batch_policy("train")
        systems = num_csx if request.weak else 1
        batch_size = fit.train_dataloader.batch_size * systems
        policy.check(batch_size, num_csx, facts.group_of_samples)
    if not facts.may_read_tokens:
        _check_budget(request, reads_tokens=False)


def _check_budget(request: SimulationRequest, *, reads_tokens: bool) -> None:
    if request.token_budget is not None and not reads_tokens:
        raise budget_without_tokens(request.token_budget, "--token_budget")


def budget_without_tokens(tokens: float, where: str) -> ConfigError:
    """Return the error of a budget of tokens for a model that reads none."""
    return ConfigError(
        "a token budget needs a model that reads tokens",
        code="model-without-tokens",
        where=where,
        value=tokens,
        rule="a batch has input_ids, or integers of shape (samples, length) alone",
        remedy=f"leave out {where}",
    )


def choices_of(own: MachineSpec, names: Sequence[str]) -> list[Choice]:
    """Return the machine with each system or named machine in turn, or as it is without a name.

    Numbers that do not count are told, as a simulation may take long.

    Args:
        own: The machine of cluster.yaml, whose changes count for the system that it changes.
        names: What ``--system`` and ``--machine`` name.
    """
    choices = [choose(own, name, _FLAGS) for name in dict.fromkeys(names) or (None,)]
    told = ("", contradiction(own))  # when the file was read
    for note in dict.fromkeys(choice.note for choice in choices if choice.note not in told):
        log.warning(note)
    return choices


def with_note(result: CurveResult, note: str) -> CurveResult:
    """Return a simulation with a note on numbers that do not count."""
    assert result.simulation is not None
    return replace(result, simulation=replace(result.simulation, overruled=note))


@dataclass(frozen=True)
class Labels:
    """Names of what is simulated, for reports."""

    model: str
    optimizer: str


def labels_of(params: Params, study: Study) -> Labels:
    """Return the names of what a params file describes, once its step is captured."""
    init = params.trainer.init
    optimizer = init.optimizer.class_name if init.optimizer else "none"
    return Labels(init.model.label(study.model_class), optimizer)


def simulate_study(
    study: Study,
    labels: Labels,
    counts: tuple[int, ...],
    detailed: int,
    request: SimulationRequest,
    params: Params | None = None,
) -> CurveResult:
    """Predict a step on every number of systems, and one point in detail.

    Args:
        study: The captured step on its machine.
        labels: The names in the report.
        counts: Numbers of systems, ascending.
        detailed: The one of ``counts`` to predict in detail.
        request: Token budget and prices.
        params: The training configuration; with it, GPU clusters are compared.
    """
    machine = study.simulator.machine
    program = study.costed(detailed).program
    num_parameters = sum(spec.num_elements for spec in program.parameters)
    start_s = time.perf_counter()
    possible, refused = study.possible_curve(counts)
    points = _points(study, possible, detailed, request)
    curve_s = time.perf_counter() - start_s
    bill = next(point.bill for point in points if point.num_csx == detailed)
    return CurveResult(
        version=VERSION,
        commit=git_commit(Path(__file__).parent),
        system=machine.system.name,
        model=ModelSummary(labels.model, num_parameters),
        batch_size=study.batch_size,
        weak=study.weak,
        tokens_per_sample=study.tokens_per_sample,
        packing=study.packing,
        micro_batch=study.policy.label,
        points=points,
        refused=refused,
        simulation=SimulationInfo(
            stream_dtype=program.stream_dtype,
            optimizer=labels.optimizer,
            sparsity=study.sparsity,
            as_published=machine.has_published_times,
            machine=machine.name or "",
            curve_s=curve_s,
            detail=study.detail(detailed, bill),
        ),
        gpus=gpus_beside(study, program) if params else None,
        configuration={
            "machine": machine.model_dump(mode="json"),
            **({"params": params.dump()} if params else {}),
        },
    )


def gpus_beside(study: Study, program: Program) -> GpuComparison:
    """Return the curves of GPU clusters that train the program of a study."""
    return compare_with_gpus(
        workload_of(program),
        study.batch_size,
        study.simulator.machine.power,
        share=study.token_share,
        weak=study.weak,
    )


def _points(
    study: Study, possible: Sequence[CurvePoint], detailed: int, request: SimulationRequest
) -> tuple[CurvePoint, ...]:
    """Return the points of a curve with their bills and intervals."""
    described = (possible[0].num_csx, detailed)
    return tuple(
        replace(
            billed(study, point, request),
            filled=study.filled(point) if point.num_csx in described else None,
        )
        for point in possible
    )


def billed(study: Study, point: CurvePoint, request: SimulationRequest) -> CurvePoint:
    """Return a point with its interval, and with the bill of the token budget that is asked for."""
    simulator, count = study.simulator, point.num_csx
    program = simulator.program.small  # of all sizes: parameters and tokens are equal
    interval = step_interval(simulator.machine, program, study.batch(count), count)
    return replace(point, bill=_bill(request, point), interval=interval)


def _make_folder(model_dir: Path) -> Path:
    folder = model_dir / "simulation"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            "the model folder must be writable",
            code="model-folder-not-writable",
            where=str(model_dir),
            value=error.strerror,
            remedy=remedy_of(error),
        ) from error
    return folder


def priced(cluster: ClusterSpec, machine: MachineSpec, prices: PriceSpec) -> ClusterSpec:
    """Return a cluster with another machine, at these prices."""
    return cluster.model_copy(update={"machine": prices.stated_for(machine)})


def _bill(request: SimulationRequest, point: CurvePoint) -> TrainingBill | None:
    if request.token_budget is None:
        return None
    assert point.prediction is not None
    assert point.prediction.tokens_per_s is not None, "checked before the capture"
    assert point.energy is not None
    assert point.energy.per_million_tokens is not None
    rate = point.prediction.tokens_per_s
    per_million = point.energy.per_million_tokens
    return training_bill(request.token_budget, rate, point.num_csx, per_million)
