"""``cstorch.pol``: the precision level of single modules or functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from cstorch import flags
from waferstream.compiler.capture.autocast import active_level
from waferstream.core.errors import ConfigError


def pol(
    level: int | None = None,
    bwd_level: int | None = None,
    enable_fwd: bool = True,
    enable_bwd: bool = True,  # noqa: ARG001
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function or module to run at a precision level of its own.

    The backward pass follows the casts of the forward pass. Its products sum in fp32 at every
    level, so ``bwd_level`` asks for nothing that is not done; it is checked only.

    Args:
        level: 0, 1 or 2 as ``csx.precision.optimization_level``; None keeps the current level.
        bwd_level: The level of the backward pass.
        enable_fwd: Whether ``level`` applies to the forward pass.
        enable_bwd: Whether the levels apply to the backward pass.

    Raises:
        ConfigError: A level is unknown.
    """
    for name, asked in (("level", level), ("bwd_level", bwd_level)):
        if asked is not None and (isinstance(asked, bool) or asked not in (0, 1, 2)):
            raise ConfigError(
                "a precision level must be 0, 1 or 2",
                code="unknown-precision-level",
                where=f"cstorch.pol, {name}",
                value=asked,
            )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        # A module has no __name__, and its attributes are no attributes of the wrapper.
        @functools.wraps(function, updated=())
        def run(*args: Any, **kwargs: Any) -> Any:
            if level is None or not enable_fwd:
                return function(*args, **kwargs)
            token = active_level.set(level)
            try:
                return function(*args, **kwargs)
            finally:
                active_level.reset(token)

        return run

    return decorate


def current_pol() -> int:
    """Return the precision level here: that of the innermost ``pol``, else the flag's."""
    level = active_level.get()
    return flags.csx.precision.optimization_level if level is None else level
