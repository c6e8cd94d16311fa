"""Checks of a program on values that a traced tensor has not: they are made while the step runs.

A program may raise where data are wrong: ``if labels.max() >= size: raise ValueError``, or
``torch._check_tensor_all``, as models of transformers do to compare image tokens with images. Such
a condition chooses between going on and an error alone, so the trace goes on, and the step gets an
op that raises in any micro-batch that violates it. What the message of a check reads has no value
yet, so its text is left out.

A condition that chooses between two computations stays refused.
"""

from __future__ import annotations

import ast
import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.overrides import TorchFunctionMode

from waferstream.compiler.capture.capture_errors import is_library

_RAISES = torch.ops.aten._functional_assert_async.msg
"""Returns its last operand, or raises if the first is false."""

_CHECKS = ("torch_compilable_check", "_check")
"""Starts of the names of functions that raise where a condition is false."""

_LATER = "(known while the step runs)"


@dataclass(frozen=True)
class _Check:
    """What must hold, a traced boolean, and the line that says so."""

    holds: torch.Tensor
    line: str


class ValueChecks(TorchFunctionMode):
    """A mode that notes checks of traced tensors instead of asking for their values."""

    def __init__(self) -> None:
        super().__init__()
        self._found: list[_Check] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        options = kwargs or {}
        if not args or not isinstance(args[0], FakeTensor):
            return func(*args, **options)
        if func is torch.Tensor.__format__ and _is_message(_calling_frame()):
            return _LATER
        if func is not torch.Tensor.__bool__:
            return func(*args, **options)
        try:
            return func(*args, **options)
        except DataDependentOutputException:
            wanted = _wanted(_calling_frame())
            if wanted is None:
                raise
            self._note(args[0] if wanted else args[0].logical_not())
            return wanted

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note checks inside the block, those of torch's own functions, too."""
        with ExitStack() as stack:
            check: Callable[..., None] = torch._check_tensor_all_with

            def note(error_type: type[Exception], cond: Any, message: Any = None) -> None:
                if isinstance(cond, FakeTensor):
                    self._note(cond)
                else:
                    check(error_type, cond, message)

            stack.enter_context(mock.patch.object(torch, "_check_tensor_all_with", note))
            stack.enter_context(self)
            yield

    def _note(self, holds: torch.Tensor) -> None:
        self._found.append(_Check(holds.detach().all(), _line()))

    def made(self, results: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the results of a step, of which the first exists only if all checks hold."""
        if not results or not self._found:
            return list(results)
        first = results[0].detach()
        for check in self._found:
            first = _RAISES(check.holds, f"the data fail a check of the model: {check.line}", first)
        return [first, *results[1:]]


def _calling_frame() -> FrameType | None:
    """Return the innermost frame of the user's code."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _line() -> str:
    """Return ``file:line: source`` of a check, outside of the function that makes it."""
    frame = _calling_frame()
    while frame is not None and frame.f_code.co_name.startswith(_CHECKS):
        frame = frame.f_back
    if frame is None:
        return "the step"
    path, number = frame.f_code.co_filename, frame.f_lineno
    return f"{path}:{number}: {linecache.getline(path, number).strip()}"


def _wanted(frame: FrameType | None) -> bool | None:
    """Return what a condition must be for a program not to raise, None if it chooses more."""
    path = _path(frame)
    place = next((i for i, node in enumerate(path) if isinstance(node, ast.If)), None)
    if place is None:
        return None
    statement = path[place]
    assert isinstance(statement, ast.If), "found as one"
    only_raises = len(statement.body) == 1 and isinstance(statement.body[0], ast.Raise)
    if not only_raises or statement.orelse:
        return None
    return _wanted_part(statement.test, path[place + 1 :])


def _wanted_part(test: ast.expr, path: Sequence[ast.AST]) -> bool | None:
    """Return what a part of a test must be for the test to be false; None if others decide, too.

    Args:
        test: The whole.
        path: Expressions around the part, from the test on. Python 3.11 has no place for what
            follows ``not``, so there is none where this is the test.
    """
    if not path:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return None if isinstance(test.operand, ast.BoolOp) else True
        return None
    if path[0] is not test:
        return None
    wanted = False
    for node, part in pairwise(path):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            wanted = not wanted
        elif isinstance(node, ast.BoolOp):
            decides = isinstance(node.op, ast.And) == wanted  # each operand alone
            if not decides and part is not node.values[-1]:
                return None
        else:
            return None  # a part of an expression, such as a value of any()
    return wanted


def _is_message(frame: FrameType | None) -> bool:
    """Return whether a text is the message of a check, or of an error."""
    for node in _path(frame):
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            if name.startswith(_CHECKS):
                return True
    return False


def _path(frame: FrameType | None) -> list[ast.AST]:
    """Return the nodes of the source around what a frame computes, from outside to inside."""
    if frame is None:
        return []
    positions = frame.f_code.co_positions()
    line, end, column, end_column = next(islice(positions, frame.f_lasti // 2, None))
    tree = _tree(frame.f_code.co_filename)
    if tree is None or None in {line, end, column, end_column}:
        return []
    place = ((line, column), (end, end_column))
    path: list[ast.AST] = []
    inner: ast.AST | None = tree
    while inner is not None:
        inner = next((each for each in ast.iter_child_nodes(inner) if _holds(each, place)), None)
        if inner is not None:
            path.append(inner)
    return path


def _holds(node: ast.AST, place: tuple[Any, Any]) -> bool:
    """Return whether the source of a node holds a place."""
    if not isinstance(node, ast.expr | ast.stmt):
        return False
    start = (node.lineno, node.col_offset)
    return bool(start <= place[0] and place[1] <= (node.end_lineno, node.end_col_offset))


@cache
def _tree(path: str) -> ast.Module | None:
    """Return the source of a file, None if there is none, as in a notebook."""
    try:
        return ast.parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return None
