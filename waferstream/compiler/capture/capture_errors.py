"""Explain a failed capture by one error about a line of the user's program."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from unittest import mock

import torch
import torch.utils.checkpoint
from torch import fx, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from waferstream.compiler.ops import REMEDIES
from waferstream.core.errors import ApplianceCompilationError, WaferStreamError
from waferstream.core.program.micro_batches import SETTING

_STATIC = "the step is captured once and runs on the wafer: no value is known while it is traced"

_BLAMED_LINE = "waferstream_line"
"""Attribute of an exception with the line of the user's program that it is due to."""

_OWN = Path(__file__).resolve().parents[3]
_CAPTURE = str(Path(__file__).with_name("capture.py"))
_TORCH = Path(torch.__file__).parent
# Ray replaces print() by a function of its own in every process that imports it.
_LIBRARIES = tuple(
    f"{folder}{os.sep}"
    for folder in (
        *(_TORCH, _TORCH.with_name("ray")),
        *(_OWN / name for name in ("appliance", "csnode", "cstorch", "memoryx", "swarmx")),
        *(_OWN / "waferstream" / name for name in ("compiler", "core", "host", "numerics")),
    )
)

_NO_GRADIENT = "does not require grad and does not have a grad_fn"
"""What torch says of a backward pass from a tensor that nothing trained has led to."""

_ONE_VALUE = "Expected more than 1 value per channel when training"
"""What torch says of batch norm where a micro-batch has one sample without further extents."""


@contextmanager
def explain(model: nn.Module) -> Iterator[None]:
    """Turn an exception of the traced step into an ApplianceCompilationError, chained."""
    try:
        yield
    except WaferStreamError:
        raise
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        op = str(error.func).rsplit(".", maxsplit=1)[0]
        remedy = REMEDIES.get(op.removeprefix("aten."))
        raise ApplianceCompilationError(
            f"op {op} depends on the values of a tensor",
            code="op-depends-on-values",
            where=user_line(error),
            rule=_STATIC,
            remedy=remedy or "compute it in the input function, or with masks",
        ) from error
    except UnsupportedOperatorException as error:
        raise ApplianceCompilationError(
            f"op {error.func} has no shape rule and cannot be traced",
            code="op-without-shape-rule",
            where=user_line(error),
        ) from error
    except Exception as error:
        raise _failure(model, error) from error


def _failure(model: nn.Module, error: Exception) -> ApplianceCompilationError:
    """Return the error of a traced step that torch has refused."""
    where = user_line(error)
    if _NO_GRADIENT in str(error):
        return ApplianceCompilationError(
            "the loss must depend on a parameter that is trained",
            code="loss-without-gradient",
            where=where,
            remedy="let a parameter require a gradient, and compute the loss from it, not from "
            "a detached tensor",
        )
    if _ONE_VALUE in str(error):
        return ApplianceCompilationError(
            "batch norm has one value for each channel of a micro-batch of one sample",
            code="batch-norm-of-one-value",
            where=where,
            rule="its statistics are those of a micro-batch, not of the batch",
            remedy=f"set {SETTING} to at least 2",
        )
    return ApplianceCompilationError(
        f"the traced step of {type(model).__name__} failed: {type(error).__name__}: {error}",
        code="traced-step-failed",
        where=where,
        rule=_STATIC,
    )


def user_line(error: BaseException) -> str | None:
    """Return ``file:line: source`` of the innermost frame in the user's code, if any.

    In a backward pass it is the line of the forward op (``blame_line``).
    """
    blamed: str | None = getattr(error, _BLAMED_LINE, None)
    return blamed or _innermost_line(traceback.extract_tb(error.__traceback__))


def blame_line(error: Exception, stack_trace: str | None) -> None:
    """Let an exception of a backward pass name the line of a forward op.

    A line of the user's own backward function is more precise, and stays.

    Args:
        error: The exception, handled where the backward pass starts.
        stack_trace: The stack trace of the graph node whose gradient was being computed, if known.
    """
    line = line_of_node(stack_trace)
    if line is None or user_line(error) is not None:
        return
    if not isinstance(error, WaferStreamError):
        setattr(error, _BLAMED_LINE, line)
    elif error.where == calling_line():
        error.where = line


@cache
def is_library(path: str) -> bool:
    """Return whether a file is no part of the user's program."""
    return path.startswith((*_LIBRARIES, "<"))


def calling_line() -> str | None:
    """Return ``file:line: source`` of the innermost call in the user's code, if any."""
    return _innermost_line(traceback.extract_stack())


def line_since(caller: FrameType) -> str | None:
    """Return the innermost line of the user's code that ``caller`` has led to, if any.

    What ``torch.utils.checkpoint`` computes again is no such line.
    """
    frame, found = sys._getframe(1), None
    while frame is not None and frame is not caller:
        path = frame.f_code.co_filename
        if path == torch.utils.checkpoint.__file__:
            return None
        if found is None and not is_library(path):
            found = traceback.FrameSummary(path, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back  # type: ignore[assignment]
    return found and f"{found.filename}:{found.lineno}: {found.line}"


def _innermost_line(frames: traceback.StackSummary) -> str | None:
    for frame in reversed(frames):
        if not is_library(frame.filename):
            return f"{frame.filename}:{frame.lineno}: {frame.line}"
    return None


class _ForwardLine:
    """The part of torch's CapturedTraceback that ``line_of_node`` reads.

    torch would symbolize all frames of the stack for every node, a fifth of the time of a capture.
    """

    def __init__(self, frame: FrameType) -> None:
        self._frame: FrameType | None = frame

    @classmethod
    def extract(cls) -> _ForwardLine:
        """Return the line of the caller."""
        return cls(sys._getframe(1))

    def summary(self) -> traceback.StackSummary:
        """Return the innermost frame of a ``forward`` in the user's code, else of other code.

        The frames around the capture have made no node.
        """
        frame, found = self._frame, None
        while frame is not None:
            code = frame.f_code
            if found is not None and code.co_filename == _CAPTURE:
                break
            if not is_library(code.co_filename):
                is_forward = code.co_name == "forward"
                if found is None or is_forward:
                    found = traceback.FrameSummary(code.co_filename, frame.f_lineno, code.co_name)
                if is_forward:
                    break
            frame = frame.f_back
        return traceback.StackSummary.from_list([] if found is None else [found])


@contextmanager
def recorded_lines() -> Iterator[None]:
    """Let nodes record the line that ``line_of_node`` reads, instead of the whole stack."""
    with (
        mock.patch.object(fx.proxy, "CapturedTraceback", _ForwardLine),
        mock.patch.object(fx.proxy.TracerBase, "_filter_traceback_frames", _all_frames),
    ):
        yield


def _all_frames(_tracer: object, frames: traceback.StackSummary) -> traceback.StackSummary:
    """Return the frames of a ``_ForwardLine``, which has none of torch's files.

    To know these files, torch would import AOTAutograd and torch.export.
    """
    return frames


def line_of_node(stack_trace: str | None) -> str | None:
    """Return ``file:line: source`` of the user's code from the stack trace of a graph node."""
    lines = (stack_trace or "").splitlines()
    for index in range(len(lines) - 1, -1, -1):
        head = lines[index].strip()
        if not head.startswith('File "'):
            continue
        path = head.split('"')[1]
        if not is_library(path):
            number = head.split("line ")[1].split(",")[0]
            source = lines[index + 1].strip() if index + 1 < len(lines) else ""
            return f"{path}:{number}: {source}"
    return None
