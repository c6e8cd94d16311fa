"""The changes of Ray's private modules with which a private instance starts, all in one place.

    parameter.RayParams                  loopback alone, a session name of ours, no monitors
    services.ConsolePopen                Ray's processes have groups of their own
    services.start_api_server            no dashboard, and no process for usage statistics
    ray_constants.SETUP_WORKER_FILENAME  workers are forked by a server that has loaded the code
    random, in each module of Ray        a generator that is not the program's

They save half of the time of a start, keep other hosts from the ports of Ray, and let it outlive a
signal to the group of the user's process. None is needed to run: with ``runtime.fast_start: false``
Ray starts by its public interface, and so it does where a release of Ray lacks one of the names.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

NAMES = (
    ("ray._private.parameter", "RayParams"),
    ("ray._private.services", "ConsolePopen"),
    ("ray._private.services", "start_api_server"),
    ("ray._private.ray_constants", "SETUP_WORKER_FILENAME"),
)
"""Modules of Ray and what is changed in them."""

_NO_DASHBOARD = (None, None)
"""Address and process of the dashboard."""

_RAYS_GENERATOR = random.Random()


def missing_names() -> list[str]:
    """Return the names that this release of Ray has not."""
    return [f"{module}.{name}" for module, name in NAMES if not _has(module, name)]


@contextmanager
def patched(
    parameters: Mapping[str, object], process_started: Callable[[Any], None], launcher: Path
) -> Iterator[None]:
    """Let an instance that starts in the block start as ours do.

    Args:
        parameters: Values of ``RayParams`` that win over those of ``ray.init``.
        process_started: Called with each process that Ray starts.
        launcher: The script that starts a worker process, in place of Ray's.
    """
    params, popen, _, _ = (getattr(import_module(module), name) for module, name in NAMES)

    def start(*words: Any, **options: Any) -> Any:
        process = popen(*words, process_group=0, **options)
        process_started(process)
        return process

    changed = (
        lambda **given: params(**given | parameters),
        start,
        lambda *_, **__: _NO_DASHBOARD,
        str(launcher),
    )
    with ExitStack() as stack:
        for (module, name), value in zip(NAMES, changed, strict=True):
            stack.enter_context(mock.patch.object(import_module(module), name, value))
        yield


def workers_script() -> Path:
    """Return the script with which Ray itself starts a worker process."""
    constants = import_module("ray._private.ray_constants")
    return Path(str(constants.__file__)).parent / "workers" / str(constants.SETUP_WORKER_FILENAME)


def give_ray_a_generator() -> None:
    """Let the loaded modules of Ray draw random numbers from a generator of their own.

    The global one belongs to the user's program: a step that is traced while Ray starts would seem
    to draw from it.
    """
    for name, module in list(sys.modules.items()):
        if name.startswith("ray.") and getattr(module, "random", None) is random:
            module.random = _RAYS_GENERATOR  # type: ignore[attr-defined]


def _has(module: str, name: str) -> bool:
    try:
        return hasattr(import_module(module), name)
    except ImportError:
        return False
