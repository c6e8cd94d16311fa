"""Binds a fused kernel: its loops to this processor, and gradients to the slabs they leave in.

A fused kernel allocates what it returns. Where that is the gradient of a weight, and has its size,
the call of its text that allocates it takes the memory in which the gradient leaves.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping
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
    """Yield the weights whose gradients are allocated for themselves, and the calls that do it."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    main = functions["forward"]
    made = _assigned(main)
    first = len(segment.outputs)
    returned = _returned(main)[first : first + len(segment.gradients)]
    seen: set[tuple[str, str]] = set()
    for weight, value in zip(segment.gradients, returned, strict=True):
        match made.get(value.id) if isinstance(value, ast.Name) else None:
            case ast.Subscript(value=ast.Name(call), slice=ast.Constant(int(index))):
                pass
            case _:
                continue
        match made.get(call):
            case ast.Call(func=ast.Name(region)) if region in functions:
                pass
            case _:
                continue
        result = _returned(functions[region])[index]
        buffer = _whole_buffer(result)
        allocation = _assigned(functions[region]).get(buffer or "")
        match allocation:
            case ast.Call(func=ast.Name(name)) if name == EMPTY and (region, buffer) not in seen:
                seen.add((region, buffer or ""))
                if _num_elements(result, allocation) == _num_elements(allocation, allocation):
                    yield weight, allocation
            case _:
                pass


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
        case ast.Name(name):
            return name
        case ast.Call(func=ast.Name(view), args=[ast.Name(name), _, _, ast.Constant(0)]):
            return name if view == VIEW else None
        case _:
            return None


def _num_elements(value: ast.expr, allocation: ast.Call) -> int:
    """Return the number of elements of a buffer's view, or of the buffer itself."""
    call = value if isinstance(value, ast.Call) else allocation
    shape = call.args[1] if call is not allocation else call.args[0]
    return math.prod(ast.literal_eval(shape))
