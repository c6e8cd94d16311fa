"""Turn a command line into a finished run or one clear message.

Exit codes: 0 finished, 1 failed (of a comparison: the two differ), 2 the command line is wrong,
141 nobody reads what it would print. A command that trains, evaluates, simulates or runs a program
goes on without a reader. A signal (SIGHUP, SIGINT, SIGTERM) that ends the command ends the process,
too: a shell shows 129, 130 or 143, and leaves the loop that the command was in after Ctrl-C.

With ``--json`` standard output is one JSON value: the result, or ``{"error": ...}``.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waferstream.cli import UNREAD
from waferstream.cli.arguments import Arguments, parse_arguments
from waferstream.cli.execute import ExecArguments, execute, parse_exec
from waferstream.cli.tools.groups import TOOLS, run_tool
from waferstream.config.params import Params
from waferstream.config.phases import check_phases, load_phases, only_phase
from waferstream.config.sections.backend import search_path
from waferstream.scaling.sweep import SimulationRequest
from waferstream.simulation.wafer_trace_request import WaferTraceRequest
from wsc.core.config import validate
from wsc.core.errors import ConfigError, WaferStreamError
from wsc.host.files import json_text
from wsc.host.interrupts import ended_within, ending, exit_code, raising
from wsc.host.standard_streams import ended_by_reader, outlasting_readers

if TYPE_CHECKING:
    from appliance.spec import ClusterSpec, RuntimeSpec
    from waferstream.reports.curve.result import CurveResult
    from waferstream.reports.run.summary import RunSummary
    from waferstream.training.trace_request import TraceRequest

log = logging.getLogger("waferstream")

_END_S = 20
"""How long a run may take to end after the exception of a signal is raised."""


def main(words: Sequence[str], home: Path | None = None) -> int:
    """Run a command line and return its exit code; that of a signal is 128 and its number.

    Args:
        words: What follows the program's name.
        home: Folder that is searched for cluster.yaml after the current one.
    """
    try:
        return command(words, home or Path())
    except KeyboardInterrupt as error:
        return exit_code(error)


def command(words: Sequence[str], home: Path) -> int:
    """Do what a command line says, print why that fails, and return the exit code.

    Raises:
        KeyboardInterrupt: A signal has ended it, which is printed already.
    """
    with raising(), ended_by_reader(UNREAD):
        return _exit_code(words, home)


def _exit_code(words: Sequence[str], home: Path) -> int:
    is_exec = words[:1] == ["exec"]
    debug = "--debug" in words and not is_exec
    prints_json = "--json" in words and not is_exec
    try:
        try:
            return _done(words, home)
        finally:
            sys.stdout.flush()
    except WaferStreamError as error:
        if debug:
            raise
        _tell(str(error), error.fields() if prints_json else None)
        return 1
    except KeyboardInterrupt as error:
        notes = getattr(error, "__notes__", [])
        print("\n" + " ".join([f"{ending(error)}.", *notes]), file=sys.stderr)
        raise
    except OSError as error:
        if debug:
            raise
        where = f"{error.filename}: " if error.filename else ""
        fields = {"kind": "OSError", "what": error.strerror, "where": error.filename}
        _tell(f"{where}{error.strerror}", fields if prints_json else None)
        return 1


def _done(words: Sequence[str], home: Path) -> int:
    """Do what a command line says; return its exit code."""
    if words[:1] == ["exec"]:
        return _execute(parse_exec(words[1:], home))
    if words and words[0] in TOOLS:
        return run_tool(words[0], words[1:])
    _run(parse_arguments(words, home), shlex.join([Path(sys.argv[0]).name, *words]))
    return 0


def _tell(text: str, fields: dict[str, Any] | None) -> None:
    """Print an error; its fields as JSON, too, unless they are None."""
    if fields is not None:
        print(json_text({"error": fields}), flush=True)
    print(f"\nError: {text}", file=sys.stderr)


def _execute(arguments: ExecArguments) -> int:
    _log_to_terminal("INFO")
    with outlasting_readers():
        return execute(arguments)


def _run(arguments: Arguments, command: str) -> None:
    phases = load_phases(arguments.params, arguments.overrides())
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
    cluster = cluster_of(arguments)
    # Importing torch takes seconds: report a wrong command line or file before that.
    from appliance.user_code import importing_from  # noqa: PLC0415

    jobs = (params.trainer.init.backend.cluster_config for params in phases)
    own = [path for job in jobs for path in search_path(job)]
    with (
        outlasting_readers(),
        _saying_what_is_left(phases, arguments),
        ended_within(_END_S),
        importing_from((arguments.params.parent, Path(), *own)),
        _ray_starting(phases, arguments, cluster.runtime),
    ):
        result: CurveResult | RunSummary | list[RunSummary] | dict[str, str | int | float]
        with _text_beside_json(arguments):
            if arguments.simulation is not None:
                params = only_phase(phases, arguments.params)
                request = arguments.simulation
                result = _simulate(params, request, cluster, arguments.trace, command)
            elif arguments.wafer_trace is not None:
                params = only_phase(phases, arguments.params)
                result = _trace_wafer(params, arguments.wafer_trace, cluster, command)
            else:
                summaries = _run_phases(phases, arguments, cluster, command)
                result = summaries if len(phases) > 1 else summaries[0]
        if arguments.prints_json:
            print(json_text(result), flush=True)


@contextmanager
def _text_beside_json(arguments: Arguments) -> Iterator[None]:
    """Send what the block prints to standard error, if standard output is to be JSON alone."""
    if not arguments.prints_json:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def _saying_what_is_left(phases: Sequence[Params], arguments: Arguments) -> Iterator[None]:
    """Add to the exception of a signal what the same command would go on from."""
    try:
        yield
    except KeyboardInterrupt as error:
        if arguments.trains_or_evaluates and not arguments.mode.startswith("eval"):
            error.add_note(_what_is_left(phases[-1]))
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
    """Let a private Ray start while the block imports torch and compiles, if it will need one."""
    backend = phases[0].trainer.init.backend
    has_cluster = arguments.trains_or_evaluates and backend.backend_type == "CSX"
    if not has_cluster or backend.compile_only or backend.validate_only:
        yield
        return
    if runtime.kind == "local":
        yield
        return
    from appliance.ray.connection.connection import entering_early  # noqa: PLC0415

    with entering_early(runtime):
        yield


def cluster_of(arguments: Arguments) -> ClusterSpec:
    """Return the machine of a command line."""
    from appliance.spec import ClusterSpec, load_cluster  # noqa: PLC0415

    cluster = load_cluster(arguments.cluster) if arguments.cluster else ClusterSpec()
    if not arguments.is_local:
        return cluster
    local = {**cluster.runtime.model_dump(exclude_unset=True), "kind": "local"}
    runtime = validate(type(cluster.runtime), local, "--local")
    return cluster.model_copy(update={"runtime": runtime})


def _run_phases(
    phases: Sequence[Params], arguments: Arguments, cluster: ClusterSpec, command: str
) -> list[RunSummary]:
    from wsc.host.terminal import spinning  # noqa: PLC0415

    _log_to_terminal(phases[0].trainer.init.logging.log_level)
    with spinning("Loading PyTorch (3 to 10 s)"):
        from waferstream.training.session import run_session  # noqa: PLC0415

    summaries = []
    for number, params in enumerate(phases, start=1):
        _log_to_terminal(params.trainer.init.logging.log_level)
        trace = arguments.trace
        if len(phases) > 1:
            log.info("Phase %d of %d", number, len(phases))
            trace = trace and trace.of_phase(number)
        summaries.append(
            run_session(params, arguments.mode, cluster, trace, arguments.faults, command)
        )
    return summaries


def _simulate(
    params: Params,
    request: SimulationRequest,
    cluster: ClusterSpec,
    trace: TraceRequest | None,
    command: str,
) -> CurveResult:
    from waferstream.simulation.session import run_simulation  # noqa: PLC0415

    _log_to_terminal(params.trainer.init.logging.log_level)
    return run_simulation(params, request, cluster, trace, command)


def _trace_wafer(
    params: Params, request: WaferTraceRequest, cluster: ClusterSpec, command: str
) -> dict[str, str | int | float]:
    from waferstream.simulation.wafer_trace import run_wafer_trace  # noqa: PLC0415

    _log_to_terminal(params.trainer.init.logging.log_level)
    return run_wafer_trace(params, request, cluster, command)


def _log_to_terminal(level: str | int) -> None:
    from wsc.host.terminal import TerminalHandler  # noqa: PLC0415

    handler = TerminalHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s: %(message)s", "%H:%M:%S"))
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(level)
