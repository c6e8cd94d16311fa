"""Kernels of a stage: the text of a segment, bound to what computes rows steadily.

That is torch in row forms, or an array of PEs: there the order of a sum depends on the number of
rows, so they pass one by one.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from csnode.engine.binding import EngineBinder
from csnode.engine.fabric import Run
from csnode.engine.spec import EngineSpec
from csnode.inference.row_forms import in_whole_vectors, packed_expert_product, packed_product
from waferstream.core.program.extend import ExtendSegment, not_row_wise

Kernel = Callable[..., tuple[Any, ...]]

_ATEN = "torch.ops.aten."
_ATTENTION = "torch.ops.waferstream.cached_attention.default"
_ATTEND = "attend_over_cache"
_EXPERTS = "torch.ops.waferstream.expert_product.default"

_FUNCTION_NAMES = "silu gelu softplus sigmoid tanh exp erf sin cos rsqrt mish elu expm1 log log1p"
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
"""Ops that torch approximates: in vectors, and what is left of a tensor otherwise."""

_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "matmul", "dot", "mv", "addmv"})


def row_kernel(
    segment: ExtendSegment, operands: Sequence[torch.Tensor], attend: Callable[..., torch.Tensor]
) -> Kernel:
    """Return the kernel of a segment from its inputs to its outputs.

    Raises:
        ConfigError: It multiplies activations with activations.
    """
    tree = ast.parse(segment.kernel.text)
    binder = _RowBinder(operands, attend)
    tree = ast.fix_missing_locations(binder.visit(tree))
    kernel = replace(segment.kernel, text=ast.unparse(tree)).build(binder.kernels)
    return partial(kernel, *_own(tree, binder.tensors))


def _own(tree: ast.AST, operands: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return copies of the operands that a kernel still reads, and nothing of those packed.

    A model may lie in a mapped file, which others write.
    """
    read = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return [each.clone() if name in read else each.new_empty(0) for name, each in operands.items()]


class _RowBinder(ast.NodeTransformer):
    """Replaces the calls whose rows have other bits in other company."""

    def __init__(
        self, operands: Sequence[torch.Tensor], attend: Callable[..., torch.Tensor]
    ) -> None:
        self.kernels: dict[str, Callable[..., Any]] = {_ATTEND: attend}
        self.tensors: dict[str, torch.Tensor] = {}
        self._operands = operands

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Note the names of the operands, the first arguments behind ``self``."""
        names = [argument.arg for argument in node.args.args[1:]]
        self.tensors = dict(zip(names, self._operands, strict=False))
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Bind a call."""
        node = ast.Call(node.func, [self.visit(each) for each in node.args], node.keywords)
        name = ast.unparse(node.func)
        if name == _ATTENTION:
            node.func = ast.Name(_ATTEND, ast.Load())
            return node
        if name == _EXPERTS:
            rows, weight, ends = node.args
            return self._call(packed_expert_product(self._tensor(weight)), [rows, ends], [])
        op = name.removeprefix(_ATEN).split(".")[0] if name.startswith(_ATEN) else ""
        if op in _PRODUCTS:
            return self._product(op, node)
        if op.removesuffix("_") in _FUNCTIONS:
            form = _written if op.endswith("_") else in_whole_vectors
            return self._call(partial(form, self._op(name, op)), node.args, node.keywords)
        return node

    def _product(self, op: str, node: ast.Call) -> ast.Call:
        """Bind a product with a weight to its packed form."""
        if op not in {"mm", "addmm"} or node.keywords:
            raise not_row_wise(f"it multiplies activations with {op}")
        *bias, left, right = node.args
        product = packed_product(self._tensor(right).t(), *map(self._tensor, bias))
        return self._call(product, [left], [])

    def _tensor(self, operand: ast.expr) -> torch.Tensor:
        """Return an operand that is made of weights; ConfigError for an activation."""
        name = ast.unparse(operand)
        if name not in self.tensors:
            raise not_row_wise(f"it multiplies activations: {name}")
        return self.tensors[name]

    def _op(self, name: str, op: str) -> Callable[..., torch.Tensor]:
        """Return the op of a call, in the form that writes nothing."""
        overload = name.removeprefix(_ATEN).split(".")[1]
        packet = getattr(torch.ops.aten, op.removesuffix("_"))
        found: Callable[..., torch.Tensor] = getattr(packet, overload)
        return found

    def _call(
        self,
        function: Callable[..., torch.Tensor],
        args: list[ast.expr],
        keywords: list[ast.keyword],
    ) -> ast.Call:
        name = f"row_form_{len(self.kernels)}"
        self.kernels[name] = function
        return ast.Call(ast.Name(name, ast.Load()), args, keywords)


def _written(
    func: Callable[..., torch.Tensor], x: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """Write a function of each element in its place."""
    return x.copy_(in_whole_vectors(func, x, *args, **kwargs))


def array_kernel(
    segment: ExtendSegment,
    operands: Sequence[torch.Tensor],
    attend: Callable[..., torch.Tensor],
    engine: EngineSpec,
    on_run: Callable[[Run], None],
) -> Kernel:
    """Return the kernel of a segment on an array of PEs, for one row at a time.

    ``on_run`` is called with every kernel of the array that is simulated.
    """
    binder = EngineBinder(segment.layer, segment.num_operands, engine, on_run)
    tree = ast.fix_missing_locations(binder.visit(ast.parse(segment.kernel.text)))
    text = ast.unparse(tree).replace(_ATTENTION, _ATTEND)
    kernels = {**binder.kernels, _ATTEND: attend}
    own = [operand.clone() for operand in operands]
    return partial(replace(segment.kernel, text=text).build(kernels), *own)
