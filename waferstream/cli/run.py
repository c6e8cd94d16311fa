"""Run what a command line asks for: training, evaluation, a simulation, a trace of a kernel."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from appliance.spec import ClusterSpec, RuntimeSpec
from appliance.user_code import importing_from
from waferstream.cli.arguments import Arguments, check_names
from waferstream.cli.early import check_run
from waferstream.cli.frame.options import machine_of
from waferstream.config.overrides import Override, lay_over
from waferstream.config.params import Params
from waferstream.config.phases import check_phases, check_sections, load_phases, only_phase
from waferstream.config.sections.backend import search_path
from waferstream.core.config import load_yaml, validate
from waferstream.core.errors import ConfigError
from waferstream.host.files import json_text
from waferstream.host.interrupts import ended_within
from waferstream.host.standard_streams import outlasting_readers
from waferstream.host.terminal import log_to_terminal, spinning
from waferstream.management.client.site import Address, address_of
from waferstream.management.model.launched import RUNTIME_ADDRESS, is_launched

if TYPE_CHECKING:
    from waferstream.reports.curve.result import CurveResult
    from waferstream.reports.run.summary import RunSummary

log = logging.getLogger("waferstream")

_END_S = 20
"""How long a run may take to end after the exception of a signal is raised."""


def run(arguments: Arguments, command: str) -> None:
    """Train, evaluate, simulate or trace a kernel, as a command line says.

    Args:
        arguments: The parsed command line.
        command: The command line as it was typed, for logs and results.

    Raises:
        WaferStreamError: It failed, or the configuration is wrong.
    """
    phases = _checked_phases(arguments)
    check_names(command)
    appliance = _appliance(phases) if arguments.trains_or_evaluates else None
    if appliance is not None:
        _submit(appliance, phases, arguments)
        return
    cluster = cluster_of(arguments)
    if arguments.trains_or_evaluates:
        check_run(phases[0], arguments.mode, cluster.runtime)
    jobs = [params.trainer.init.backend.cluster_config for params in phases]
    own = [path for job in jobs for path in search_path(job)]
    with (
        outlasting_readers(),
        _saying_what_is_left(phases, arguments),
        ended_within(_END_S),
        importing_from((arguments.params.parent, Path(), *own)),
        _ray_starting(phases, arguments, cluster.runtime),
    ):
        with redirect_stdout(sys.stderr if arguments.prints_json else sys.stdout):
            result = _result(phases, arguments, cluster, command)
        if arguments.prints_json:
            print(json_text(result), flush=True)


def _appliance(phases: Sequence[Params]) -> Address | None:
    """Return the appliance that runs the command; None if this process does."""
    backend = phases[0].trainer.init.backend
    if is_launched() or backend.backend_type != "CSX":
        return None
    job = backend.cluster_config
    return address_of(job.mgmt_address, job.credentials_path, not job.disable_version_check)


def _submit(appliance: Address, phases: Sequence[Params], arguments: Arguments) -> None:
    """Let an appliance run the command."""
    from waferstream.management.client.submitting import submit, travelling  # noqa: PLC0415  (gRPC)
    from waferstream.management.model.inventory import DEFAULT_SESSION  # noqa: PLC0415
    from waferstream.management.model.job import PRIORITIES  # noqa: PLC0415
    from waferstream.management.model.workflow import Submission  # noqa: PLC0415

    _log_as(phases[0])
    files = (arguments.params, *([arguments.cluster] if arguments.cluster else ()))
    jobs = [params.trainer.init.backend.cluster_config for params in phases]
    submission = Submission(
        words=travelling(arguments.words),
        num_csx=max(each.num_csx for each in jobs),
        min_num_csx=arguments.typed.get("min_num_csx"),
        session=arguments.typed.get("session", DEFAULT_SESSION),
        is_detached="detach" in arguments.typed,
        priority=PRIORITIES[jobs[0].job_priority],
        labels=jobs[0].job_labels,
        limit_s=jobs[0].job_time_sec,
        notifications=jobs[0].notifications,
    )
    workflow = submit(appliance, submission, files, phases[0].trainer.init.model_dir)
    if arguments.prints_json:
        print(json_text(workflow.model_dump(mode="json")), flush=True)


def _log_as(params: Params) -> None:
    """Show log lines at the level and in the words of a configuration."""
    logging_of = params.trainer.init.logging
    log_to_terminal(logging_of.log_level, logging_of.words)


def _checked_phases(arguments: Arguments) -> tuple[Params, ...]:
    """Read the params file, and check that it has what the mode needs."""
    read = load_phases(arguments.params, arguments.overrides())
    for params in read:
        check_sections(params)
    phases = _shrunk(read, arguments)
    check_phases(phases, arguments.mode)
    if arguments.trains_or_evaluates:
        for params in phases:
            params.trainer.check(arguments.mode)
    device = phases[0].trainer.init.backend.backend_type
    if device != "CSX" and not arguments.trains_or_evaluates:
        raise ConfigError(
            "a simulation must be one of CSX",
            code="device-not-emulated",
            where="trainer.init.backend.backend_type",
            value=device,
        )
    return phases


def _shrunk(phases: tuple[Params, ...], arguments: Arguments) -> tuple[Params, ...]:
    """Return the phases at the size of ``--shrink``, and print what differs; or as they are."""
    if arguments.num_parameters is None:
        return phases
    from waferstream.config.shrinking.shrink import differences, shrunk  # noqa: PLC0415  (torch)

    small = tuple(shrunk(params, arguments.num_parameters) for params in phases)
    shown = sys.stderr if arguments.prints_json else sys.stdout
    for before, after in zip(phases, small, strict=True):
        print("\n".join(differences(before.dump(), after.dump())), file=shown, flush=True)
    return small


def _result(
    phases: Sequence[Params], arguments: Arguments, cluster: ClusterSpec, command: str
) -> CurveResult | RunSummary | list[RunSummary] | list[Any] | dict[str, str | int | float]:
    """Do what the command line asks for; return what ``--json`` prints."""
    if arguments.trains_or_evaluates:
        summaries = _run_phases(phases, arguments, cluster, command)
        return summaries if len(phases) > 1 else summaries[0]
    params = only_phase(phases, arguments.params)
    _log_as(params)
    if arguments.wafer_trace is not None:
        from waferstream.simulation.wafer_trace import run_wafer_trace  # noqa: PLC0415

        return run_wafer_trace(params, arguments.wafer_trace, cluster, command)
    assert arguments.simulation is not None, "nothing else is asked for"
    if arguments.is_plan:
        from waferstream.simulation.step_plan import run_plan  # noqa: PLC0415

        return run_plan(params, arguments.simulation, cluster)
    from waferstream.simulation.session import run_simulation  # noqa: PLC0415

    return run_simulation(params, arguments.simulation, cluster, arguments.trace, command)


@contextmanager
def _saying_what_is_left(phases: Sequence[Params], arguments: Arguments) -> Iterator[None]:
    """Add to the exception of a signal what the same command would go on from, or who sent it."""
    try:
        yield
    except KeyboardInterrupt as error:
        if arguments.trains_or_evaluates and not arguments.mode.startswith("eval"):
            asked = "The appliance has asked it to end."
            error.add_note(asked if is_launched() else _what_is_left(phases[-1]))
        raise


def _what_is_left(params: Params) -> str:
    """Say what the same command would start from, and which checkpoint it would leave aside."""
    from appliance.checkpoints.folder import CheckpointFolder  # noqa: PLC0415

    init, fit = params.trainer.init, params.trainer.fit
    saved = CheckpointFolder(init.model_dir, init.checkpoint.checkpoint_name).entries()
    newest = next((init.model_dir / each.file for each in reversed(saved) if each.is_finite), None)
    named = "newest" if fit is None else fit.ckpt_path
    if named == "newest" and init.checkpoint.autoload_last_checkpoint:
        if newest is not None:
            return f"The same command continues from {newest}."
        return f"No checkpoint in {init.model_dir}: the same command starts from the first step."
    start = named if isinstance(named, Path) else "the first step"
    beside = "" if newest in (None, named) else f"; the newest checkpoint is {newest}"
    return f"The same command starts from {start} again{beside}."


@contextmanager
def _ray_starting(
    phases: Sequence[Params], arguments: Arguments, runtime: RuntimeSpec
) -> Iterator[None]:
    """Let a private Ray start while the block compiles, if it will need one.

    Its roles are forked from this process, which has loaded their code before it has threads.
    """
    backend = phases[0].trainer.init.backend
    has_cluster = arguments.trains_or_evaluates and backend.backend_type == "CSX"
    if not has_cluster or backend.compile_only or backend.validate_only or runtime.kind == "local":
        yield
        return
    is_new = "torch" not in sys.modules  # what has computed with it has threads
    if runtime.address == "local" and runtime.fast_start and is_new:
        from appliance.ray.forks.fork_server import start_here  # noqa: PLC0415

        _log_as(phases[0])
        _load_torch()
        start_here()
    from appliance.ray.connection.connection import entering_early  # noqa: PLC0415

    with entering_early(runtime):
        yield


def cluster_of(arguments: Arguments) -> ClusterSpec:
    """Return the machine of a command line: that of the file with the keys that were typed."""
    typed = list(arguments.keys.cluster)
    if arguments.is_local:
        typed.append(Override("--local", ("runtime", "kind"), "local"))
    if address := os.environ.get(RUNTIME_ADDRESS):
        typed.append(Override(RUNTIME_ADDRESS, ("runtime", "address"), address))
    file = arguments.cluster
    found = machine_of(file)
    if not typed:
        return found
    data = load_yaml(file) if file else {}
    for override in typed:
        lay_over(data, override)
    flags = ", ".join(override.flag for override in typed)
    with importing_from((file.parent if file else Path(),)):  # a machine of the user's own
        return validate(ClusterSpec, data, f"command line, one of {flags}")


def _load_torch() -> None:
    with spinning("Loading PyTorch (3 to 10 s)"):
        import waferstream.training.session  # noqa: F401, PLC0415


def _run_phases(
    phases: Sequence[Params], arguments: Arguments, cluster: ClusterSpec, command: str
) -> list[RunSummary]:
    _log_as(phases[0])
    _load_torch()
    from waferstream.management.client.reporting import launched_reporter  # noqa: PLC0415
    from waferstream.training.launch import Launch  # noqa: PLC0415
    from waferstream.training.session import run_session  # noqa: PLC0415

    launch, summaries = Launch.of_environment(launched_reporter()), []
    for number, params in enumerate(phases, start=1):
        _log_as(params)
        trace = arguments.trace
        if len(phases) > 1:
            log.info("Phase %d of %d", number, len(phases))
            trace = trace and trace.of_phase(number)
        part = launch and launch.in_phase(number, len(phases))
        summaries.append(
            run_session(params, arguments.mode, cluster, trace, arguments.faults, command, part)
        )
    return summaries
