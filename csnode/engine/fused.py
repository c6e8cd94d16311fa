"""Binds a fused kernel: its loops to this processor, and gradients to the slabs they leave in.

A fused kernel allocates what it returns. Where that is the gradient of a weight, and has its size,
the call of its text that allocates it takes the memory in which the gradient leaves.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from csnode.engine.places import GradientPlaces
from waferstream.compiler.fusion.shared_object import processor
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.fused import EMPTY, VIEW, FusedKernel, allocate
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.segment import Segment


def bound_fused(
    fused: FusedKernel, kernel: KernelSource, segment: Segment, places: GradientPlaces | None
) -> Callable[..., tuple[Any, ...]]:
    """Return a fused kernel as a callable on the weights and inputs of its segment.

    Args:
        fused: The kernel.
        kernel: The one that it was made of.
        segment: What both compute.
        places: Where gradients are written; without, into memory of their own.

    Raises:
        ApplianceCompilationError: It was compiled for another processor.
    """
    if fused.processor != processor():
        raise ApplianceCompilationError(
            "a kernel was compiled for another processor",
            code="kernel-of-another-processor",
            where=f"{segment.layer} {segment.phase}, runtime.engine.kernels",
            rule="the hosts of all systems have the processor of the host of the program",
            remedy="set runtime.engine.kernels: eager",
        )
    if places is None or not segment.gradients:
        return fused.build(kernel)
    tree = ast.parse(fused.text)
    functions: dict[str, Callable[..., Any]] = {}
    for weight, call in _allocations(tree, segment):
        name = f"{EMPTY}_{len(functions)}"
        call.func = ast.Name(name, ast.Load())
        functions[name] = places.allocating(weight, allocate)
    return fused.build(kernel, functions, ast.unparse(ast.fix_missing_locations(tree)))


def _allocations(tree: ast.Module, segment: Segment) -> Iterator[tuple[str, ast.Call]]:
    """Yield the weights whose gradients are allocated for themselves, and the calls that do it.

    The allocated memory has the gradient's order, and nothing else reads it: it leaves.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    main = functions["forward"]
    made = _assigned(main)
    first = len(segment.outputs)
    returned = _returned(main)[first : first + len(segment.gradients)]
    for weight, value in zip(segment.gradients, returned, strict=True):
        if not isinstance(value, ast.Name) or _num_reads(main, value.id) > 1:
            continue
        match made.get(value.id):
            case ast.Subscript(value=ast.Name(call), slice=ast.Constant(int(index))):
                pass
            case _:
                continue
        match made.get(call):
            case ast.Call(func=ast.Name(region)) if region in functions:
                pass
            case _:
                continue
        allocation = _allocation_of(functions[region], index)
        if allocation is not None:
            yield weight, allocation


def _allocation_of(region: ast.FunctionDef, index: int) -> ast.Call | None:
    """Return the call that allocates a result of a region, and no other result.

    None if there is none, or if elements of the result have another order in memory.
    """
    result = _returned(region)[index]
    buffer = _whole_buffer(result)
    allocation = _assigned(region).get(buffer or "")
    match allocation:
        case ast.Call(func=ast.Name(name)) if name == EMPTY:
            pass
        case _:
            return None
    forms = [tuple(map(ast.literal_eval, allocation.args[:2]))]
    if isinstance(result, ast.Call):
        forms.append(tuple(map(ast.literal_eval, result.args[1:3])))
    sizes = {math.prod(shape) for shape, _ in forms}
    is_ordered = all(_is_contiguous(*form) for form in forms) and len(sizes) == 1
    return allocation if is_ordered and not _has_aliases(region, buffer or "") else None


def _has_aliases(region: ast.FunctionDef, buffer: str) -> bool:
    """Return whether a buffer has another name, or is more than one result."""
    renamed = (
        node.value
        for node in region.body
        if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Constant)
    )
    is_renamed = any(_viewed(value) == buffer for value in renamed)
    return is_renamed or [_viewed(value) for value in _returned(region)].count(buffer) > 1


def _num_reads(function: ast.FunctionDef, name: str) -> int:
    return sum(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for node in ast.walk(function)
    )


def _assigned(function: ast.FunctionDef) -> Mapping[str, ast.expr]:
    """Return the value of each name that is assigned once, and not freed by ``None``."""
    return {
        node.targets[0].id: node.value
        for node in function.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if not isinstance(node.value, ast.Constant)
    }


def _returned(function: ast.FunctionDef) -> list[ast.expr]:
    last = function.body[-1]
    assert isinstance(last, ast.Return)
    assert isinstance(last.value, ast.Tuple)
    return last.value.elts


def _whole_buffer(value: ast.expr) -> str | None:
    """Return the buffer that a returned value is, or is a view of from its beginning."""
    match value:
        case ast.Call(args=[_, _, _, ast.Constant(offset)]) if offset != 0:
            return None
        case _:
            return _viewed(value)


def _viewed(value: ast.expr) -> str | None:
    """Return the buffer that a value is, or is a view of."""
    match value:
        case ast.Name(name):
            return name
        case ast.Call(func=ast.Name(view), args=[ast.Name(name), *_]) if view == VIEW:
            return name
        case _:
            return None


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether elements lie side by side in logical order."""
    size = 1
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != size:
            return False
        size *= extent
    return True
