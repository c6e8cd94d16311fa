"""The ops of a kernel's text in an order in which as many as possible lie side by side.

Ops are *fusible* if they are aten ops on tensors that draw no random numbers and overwrite nothing.
All others run as they are in the text: the project's own functions, and ops of numbers that each
micro-batch brings, such as the gradient of its loss. Levels alternate between both:

    level 0   others that read nothing fusible (masks of dropout)
    level 1   fusible ops
    level 2   others that read results of level 1 ...
"""

from __future__ import annotations

import ast
import importlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from waferstream.core.program.fused import constants_read
from waferstream.core.program.kernel_source import KernelSource


@dataclass(frozen=True)
class Normalized:
    """A kernel's text with names in order of appearance, so that equal layers have equal texts.

    The function ``forward`` takes the operands, then the constants, whose names are ``constants``.
    """

    text: str
    constants: tuple[str, ...]
    modules: Mapping[str, tuple[str, str]]


def normalized(kernel: KernelSource) -> Normalized:
    """Return the normalized text of a kernel."""
    tree = ast.parse(kernel.text)
    (function,) = (node for node in tree.body if isinstance(node, ast.FunctionDef))
    renamer = _Renamer(argument.arg for argument in function.args.args[1:])
    constants = constants_read(kernel.text)
    function.args.args = [ast.arg(name) for name in renamer.names.values()]
    function.args.args += [ast.arg(_constant(name, constants)) for name in constants]
    renamer.constants = constants
    function.body = [renamer.visit(statement) for statement in function.body]
    text = ast.unparse(ast.fix_missing_locations(tree))
    return Normalized(text, tuple(constants), kernel.modules)


def _constant(name: str, constants: Sequence[str]) -> str:
    return f"c{constants.index(name)}"


class _Renamer(ast.NodeTransformer):
    """Renames arguments, values and constants."""

    def __init__(self, arguments: Iterable[str]) -> None:
        self.names = {name: f"a{index}" for index, name in enumerate(arguments)}
        self.constants: Sequence[str] = ()

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Rename a value; a global is none that was assigned."""
        if isinstance(node.ctx, ast.Store):
            self.names.setdefault(node.id, f"v{len(self.names)}")
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Rename what is read before what is assigned."""
        node.value = self.visit(node.value)
        node.targets = [self.visit(target) for target in node.targets]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replace ``self.constant`` by an argument."""
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return ast.Name(_constant(node.attr, self.constants), ast.Load())
        return self.generic_visit(node)


def traced(kernel: Normalized) -> fx.Graph:
    """Return the graph of a normalized text; functions of the project are calls of their own."""
    tracer = fx.Tracer()

    def call(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: tracer.create_proxy("call_function", function, args, kwargs)

    scope: dict[str, Any] = {
        "torch": _Noted(torch, call),
        "device": torch.device,
        "inf": float("inf"),
        "nan": float("nan"),
        "NoneType": type(None),
    }

    for name, (module, attribute) in kernel.modules.items():
        scope[name] = call(getattr(importlib.import_module(module), attribute))
    exec(kernel.text, scope)  # noqa: S102 - text of our compiler
    return tracer.trace(scope["forward"])


_NAMESPACES = (torch._ops._Ops, torch._ops._OpNamespace, torch._ops.OpOverloadPacket)


class _Noted:
    """A namespace of torch whose ops are calls of a graph, also those that read no value of it.

    torch.fx itself would compute these, and keep a constant.
    """

    def __init__(self, target: Any, call: Callable[[Any], Any]) -> None:
        self._target, self._call = target, call

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if isinstance(found, torch._ops.OpOverload):
            return self._call(found)
        return _Noted(found, self._call) if isinstance(found, _NAMESPACES) else found


class NotFusibleError(Exception):
    """A kernel, or a part of it, stays as it is; the text says why."""


def levels_of(graph: fx.Graph, numbers: Sequence[bool]) -> dict[fx.Node, int]:
    """Return the level of each call; those of odd levels are fusible.

    Args:
        graph: The graph of a kernel.
        numbers: Of each argument, whether it is a number.

    Raises:
        NotFusibleError: A value is read elsewhere than by the call that overwrites it.
    """
    placeholders = graph.find_nodes(op="placeholder")
    is_number = dict(zip(placeholders, numbers, strict=True))
    overwritten = set(_overwritten(graph))
    levels: dict[fx.Node, int] = {}
    for node in graph.nodes:
        if node.op != "call_function":
            continue
        operands = node.all_input_nodes
        level = max((levels.get(each, 0) for each in operands), default=0)
        if node.target is not operator.getitem:
            reads_number = any(is_number.get(each, False) for each in operands)
            fuses = _is_fusible(node) and node not in overwritten and not reads_number
            level += level % 2 != fuses
        levels[node] = level
    return levels


_LEFT = frozenset({torch.ops.aten._grouped_mm.default})
"""Ops with types that torch's rules for shapes refuse: fp32, of experts."""


def _is_fusible(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload) or target.namespace not in ("aten", "prims"):
        return False
    if target in _LEFT:
        return False
    return not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags


def _overwritten(graph: fx.Graph) -> Iterator[fx.Node]:
    """Yield the values that calls overwrite."""
    for node in graph.nodes:
        position = getattr(node.target, "waferstream_overwrites", None)
        if position is None and isinstance(node.target, torch._ops.OpOverload):
            arguments = node.target._schema.arguments
            written = [i for i, a in enumerate(arguments) if a.is_write]
            position = written[0] if written else None
        if position is None:
            continue
        value = node.args[position]
        if not isinstance(value, fx.Node) or list(value.users) != [node]:
            raise NotFusibleError(f"{node.target} overwrites a value that is read elsewhere")
        yield value
