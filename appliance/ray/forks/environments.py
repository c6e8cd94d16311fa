"""Runtime environments of single tasks, which a Ray without agents cannot prepare."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest import mock

from ray.actor import ActorClass
from ray.remote_function import RemoteFunction

from waferstream.core.errors import ConfigError


@contextmanager
def environments_refused() -> Iterator[None]:
    """Let tasks and actors with a runtime environment of their own fail in the block.

    A raylet without agents waits for one that would prepare it, ends, and all roles with it.
    """
    with ExitStack() as stack:
        for kind in (RemoteFunction, ActorClass):
            checked = _without_environment(kind._remote)
            stack.enter_context(mock.patch.object(kind, "_remote", checked))
        yield


def _without_environment(submit: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(submit)
    def checked(*given: Any, **options: Any) -> Any:
        if environment := options.get("runtime_env"):
            raise ConfigError(
                "a task of a Ray that has no agents can have no environment of its own",
                code="runtime-env-without-agents",
                where="runtime_env",
                value=dict(environment),
                rule="none, while runtime.fast_start is true and runtime.metrics false",
                remedy="set runtime.fast_start: false, or start Ray and use runtime.address: auto",
            )
        return submit(*given, **options)

    return checked
