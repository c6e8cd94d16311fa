"""The backend of this process: there is one, until it is shut down."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any, overload

import torch

from cstorch import flags
from cstorch.backend import Backend
from cstorch.cluster import job_settings
from cstorch.cluster.config import ClusterConfig, current_witness
from cstorch.devices import BackendType
from cstorch.recording.loop import Loop
from cstorch.session.session import Session
from cstorch.session.settings import ProgramSettings
from cstorch.terminal import log_to_terminal
from waferstream.core.errors import (
    ConfigError,
    ProgramOrderError,
    WaferStreamError,
    WeightsLostError,
    did_you_mean,
)

log = logging.getLogger("waferstream")

_DROPPED = {
    "max_checkpoints": "remove older files where the program saves one",
    "use_cs_grad_accum": "set cstorch.backends.csx.performance.micro_batch_size",
    "drop_data": "leave it out: steps run on the data of the loader",
}
"""What to do instead of options of earlier releases."""

_latest: Backend | None = None
_is_input_worker = False  # of a CSX, in a process without a backend


def backend(
    backend_type: str | None = None,
    artifact_dir: Path | str | None = None,
    **options: Any,
) -> Backend:
    """Make the backend of this process, or return it when called without arguments.

    Args:
        backend_type: CSX, CPU or GPU; by default CSX.
        artifact_dir: The folder for the compile cache and for a folder of every executor loop; if
            None, nothing is written.
        options: Other options of ``ProgramSettings``.

    Raises:
        RuntimeError: There is a backend already, and no error has ended its loop.
        ConfigError: An option is unknown, or has a wrong type or value.
    """
    if options.pop("retrace_every_iteration", False):  # an option up to release 2.2
        flags.csx.debug.retrace_every_iteration = True
    _check_options(options)
    if artifact_dir is not None:
        options["artifact_dir"] = artifact_dir
    if backend_type is None and not options:
        return current_backend()
    earlier = existing_backend()
    if earlier is not None and not (earlier.session.has_left_loop or _is_interactive()):
        raise ProgramOrderError(
            "a backend exists already",
            code="second-backend",
            value=earlier.backend_type.name,
            rule="there is one per process",
            remedy="cstorch.backend() without arguments returns it; backend.shutdown() ends it",
        )
    return replace_backend(backend_type or "CSX", **options)


def backend_of(kind: str) -> Backend:
    """Return the backend of this process if it is of a kind, or make one with default options.

    Raises:
        RuntimeError: There is a backend of another kind.
    """
    earlier = existing_backend()
    is_same = earlier is not None and earlier.backend_type == BackendType.from_str(kind)
    return earlier if earlier is not None and is_same else backend(kind)


def replace_backend(backend_type: str, **options: Any) -> Backend:
    """Make a backend; one that exists and runs no loop is ended first, whatever its state is.

    A notebook whose cells are run again calls ``backend`` again, and expects to start anew.

    Raises:
        RuntimeError: There is a backend, and its loop runs.
        WeightsLostError: Its trained weights could not be read; the next call starts anew.
    """
    global _latest  # noqa: PLW0603  (the one backend of this process)
    log_to_terminal()
    witness = current_witness()
    kind = BackendType.from_str(backend_type if witness is None else witness.device or backend_type)
    earlier = existing_backend()
    if earlier is not None:
        _end(earlier)
    _latest = Backend(Session(ProgramSettings(kind, **options)))
    return _latest


def _end(earlier: Backend) -> None:
    """End a backend; what fails in that does not concern the next one, but for lost weights."""
    try:
        earlier.end_idle()
    except WeightsLostError:  # the next one would train others
        raise
    except WaferStreamError as error:
        log.warning("The earlier backend has ended with an error: %s", error)
    else:
        log.info("The earlier backend has ended; its model keeps the trained weights")


def _is_interactive() -> bool:
    """Return whether people type this program line by line, or in the cells of a notebook."""
    return hasattr(sys, "ps1")


@overload
def current_backend() -> Backend: ...
@overload
def current_backend(*, raise_exception: bool, raise_warning: bool = ...) -> Backend | None: ...
def current_backend(
    *,
    raise_exception: bool = True,
    raise_warning: bool = False,
) -> Backend | None:
    """Return the backend of this process.

    Args:
        raise_exception: Whether to raise RuntimeError, and not return None, if there is none.
        raise_warning: Whether to warn if None is returned.
    """
    backend = existing_backend()
    if backend is None:
        missing = "there is no backend yet"
        if raise_exception:
            remedy = 'call cstorch.backend("CSX") first'
            raise ProgramOrderError(missing, code="no-backend", remedy=remedy)
        if raise_warning:
            warnings.warn(missing, stacklevel=2)
    return backend


def existing_backend() -> Backend | None:
    """Return the backend of this process, None if there is none or it was shut down."""
    return None if _latest is None or _latest.session.has_ended else _latest


def current_session() -> Session:
    """Return the session of this process; RuntimeError if there is none."""
    return current_backend().session


def existing_session() -> Session | None:
    """Return the session of this process, None if there is none or it was shut down."""
    backend = existing_backend()
    return None if backend is None else backend.session


def current_torch_device() -> torch.device:
    """Return the torch device of the user's tensors: that of the backend, or the CPU."""
    backend = existing_backend()
    return torch.device("cpu") if backend is None else backend.torch_device


def current_executor() -> Loop:
    """Return the executor whose loop runs; RuntimeError outside of a loop."""
    loop = current_session().loop
    if loop is None:
        raise ProgramOrderError("no executor loop is running", code="no-loop")
    return loop


def use_cs() -> bool:
    """Return whether the program runs for CSX: in the user's process, and on input workers."""
    backend = existing_backend()
    return _is_input_worker if backend is None else backend.is_csx


def call_on_worker(input_fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call an input function where ``use_cs`` answers as in the user's process."""
    global _is_input_worker  # noqa: PLW0603  (the loader asks later, from any thread)
    _is_input_worker = existing_backend() is None
    return input_fn(*args, **kwargs)


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that a program does not have, or of another type."""
    known = [name for name in signature(ProgramSettings).parameters if name != "backend_type"]
    for name in options:
        if name not in known:
            raise ConfigError(
                f"backend() has no option {name}",
                code="unknown-backend-option",
                where="cstorch.backend",
                rule=f"one of {', '.join(known)}",
                remedy=_DROPPED.get(name) or did_you_mean(name, known) or "leave it out",
            )
    config = options.get("cluster_config")
    if config is not None and not isinstance(config, (ClusterConfig, job_settings.ClusterConfig)):
        raise ConfigError(
            "cluster_config must be a cstorch.ClusterConfig",
            code="not-a-cluster-config",
            where="cstorch.backend",
            value=type(config).__name__,
            remedy="cluster_config=cstorch.ClusterConfig(num_csx=2)",
        )
