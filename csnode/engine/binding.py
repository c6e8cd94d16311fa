"""Binds the calls of a kernel's text to an engine.

The compiler writes one text for all engines: calls of aten ops. An engine replaces those calls that
it computes itself; all others, such as copies and elementwise ops, stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

import torch

from csnode.devices.kernels import PROCESSOR, moved
from csnode.engine.array import WaferArray
from csnode.engine.fabric import FabricArray, Run
from csnode.engine.fused import bound_fused
from csnode.engine.kernels import KERNELS, PRODUCTS
from csnode.engine.places import GradientPlaces
from csnode.engine.spec import EngineName, EngineSpec
from csnode.sparsity.gradients import bind_gradients
from csnode.sparsity.products import Pattern
from waferstream.compiler.ops import KIND_OF
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.fused import FusedKernel
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.segment import Segment

_PREFIX = "torch.ops.aten."
_CHOOSING = (
    "nll_loss_forward nll_loss_backward nll_loss2d_forward nll_loss2d_backward amax amin max min "
    "argmax argmin any all topk sort aminmax kthvalue median nanmedian mode histc cummax cummin"
)
_TORCH = frozenset(_CHOOSING.split())
"""Ops of a kind of the engine that choose values instead of adding them up: torch computes them."""


def built(
    kernel: KernelSource,
    segment: Segment,
    engine: EngineSpec,
    patterns: Mapping[str, Pattern] = MappingProxyType({}),
    device: torch.device = PROCESSOR,
    places: GradientPlaces | None = None,
    fused: FusedKernel | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """Return a kernel as a callable, its calls bound to the engines of the segment.

    Args:
        kernel: The kernel.
        segment: What it computes.
        engine: What computes its calls.
        patterns: Weights whose gradients are sparse, whenever the kernel runs.
        device: Where torch computes; on another than the processor, it computes everything.
        places: Where torch's kernels write gradients; without, into memory of their own.
        fused: The kernel that the processor runs instead.

    Raises:
        ApplianceCompilationError: An engine, or the device, has no kernel for an op, or a fused
            kernel was compiled for another processor.
    """
    if device != PROCESSOR:
        return moved(kernel, segment.layer, device)
    if fused is not None:
        return bound_fused(fused, kernel, segment, places)
    setting = engine.sparse_products_of(segment.layer)
    if engine.is_torch and setting == "none":
        return kernel.build() if places is None else places.built(kernel, segment)
    tree = ast.parse(kernel.text)
    binder = EngineBinder(segment.layer, len(segment.weights), engine)
    if not engine.is_torch:
        tree = binder.visit(tree)
    kernels = dict(binder.kernels)
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    if setting != "none":
        kernels |= bind_gradients(function, segment, setting, patterns)
    return replace(kernel, text=ast.unparse(ast.fix_missing_locations(tree))).build(kernels)


class EngineBinder(ast.NodeTransformer):
    """Replaces calls of aten ops; knows which values are made of streamed weights alone."""

    def __init__(
        self,
        layer: str,
        num_weights: int,
        engine: EngineSpec,
        on_run: Callable[[Run], None] | None = None,
    ) -> None:
        self.kernels: dict[str, Callable[..., Any]] = {}
        self._layer, self._num_weights, self._engine = layer, num_weights, engine
        self._on_run = on_run
        self._weights: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Note the names of the weights, the first arguments behind ``self``."""
        arguments = [argument.arg for argument in node.args.args[1:]]
        self._weights |= set(arguments[: self._num_weights])
        return self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Bind the call whose value is assigned, and note values made of weights alone."""
        target, value = node.targets[0], node.value
        if not isinstance(target, ast.Name) or isinstance(value, ast.Constant):
            return node  # "x = None", which frees a value
        if isinstance(value, ast.Call):
            node.value = self._bound(value)
        read = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} - _globals(self.kernels)
        if read and read <= self._weights:
            self._weights.add(target.id)
        return node

    def _bound(self, call: ast.Call) -> ast.Call:
        name = ast.unparse(call.func)
        op = name.removeprefix(_PREFIX).split(".")[0]
        engine = self._engine.of(self._layer, KIND_OF.get(op, ""))
        if not name.startswith(_PREFIX) or engine == "torch" or op in _TORCH:
            return call
        if op not in KERNELS:
            raise ApplianceCompilationError(
                f"the engine has no kernel for {op}",
                code="engine-without-kernel",
                where=f"{self._layer}, runtime.engine",
                value=engine,
                rule=f"kernels: {', '.join(sorted(KERNELS))}",
                remedy=f"let torch compute it: runtime.engine.kernels: {{{KIND_OF[op]}: torch}}",
            )
        bound = partial(KERNELS[op], array_of(self._engine, engine, self._on_run))
        if op in PRODUCTS:
            operands = call.args[-2:]
            bound = partial(bound, tuple(self._is_weight(operand) for operand in operands))
        name = f"{engine.replace('-', '_')}_{op}_{len(self.kernels)}"
        self.kernels[name] = bound
        return ast.Call(ast.Name(name, ast.Load()), call.args, call.keywords)

    def _is_weight(self, operand: ast.expr) -> bool:
        return isinstance(operand, ast.Name) and operand.id in self._weights


def array_of(
    spec: EngineSpec, engine: EngineName, on_run: Callable[[Run], None] | None = None
) -> WaferArray | None:
    """Return the array of PEs of an engine; None for torch.

    ``on_run`` is called with every kernel that ``wafer-cycles`` simulates.
    """
    if engine == "torch":
        return None
    if engine == "wafer":
        return WaferArray(spec.rows, spec.columns)
    return FabricArray(spec.rows, spec.columns, on_run=on_run)


def _globals(kernels: dict[str, Callable[..., Any]]) -> set[str]:
    return {"torch", "device", *kernels}
