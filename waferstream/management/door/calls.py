"""Calls of what is behind the doors: in a thread, and within a time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import TypeVar, TypeVarTuple

from waferstream.core.errors import (
    ApplianceServiceInterrupted,
    ApplianceUnknownError,
    WaferStreamError,
)
from waferstream.core.system_errors import file_error

log = logging.getLogger("waferstream")

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

CALL_S = 30.0
"""How long an operation may take."""


class Calls:
    """The threads that call what is behind the doors."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    async def __call__(
        self, function: Callable[[*Arguments], Result], *arguments: *Arguments
    ) -> Result:
        """Call a function in a thread.

        Raises:
            ApplianceServiceInterrupted: It takes too long.
        """
        loop = asyncio.get_running_loop()
        async with within(CALL_S):
            return await loop.run_in_executor(self._executor, function, *arguments)


@asynccontextmanager
async def within(limit_s: float) -> AsyncIterator[None]:
    """Enter a block that has to end within a time; else it raises ApplianceServiceInterrupted."""
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as error:
        raise ApplianceServiceInterrupted(
            "the management has not answered in time",
            code="management-slow",
            rule=f"within {limit_s:.0f} s",
            remedy="ask again",
        ) from error


def typed(error: Exception) -> WaferStreamError:
    """Return the typed error that a caller gets for what has happened."""
    if isinstance(error, WaferStreamError):
        return error
    if isinstance(error, OSError):
        return file_error(error)
    log.error("The management has failed", exc_info=error)
    return ApplianceUnknownError(
        "the management has failed here", code="management-failed", remedy="its log says why"
    )
