"""What a step makes of gradients before the update: hooks of parameters, ``p.grad.clamp_()``.

A system has the gradient of its micro-batches only, of which a clamp is not that of the whole. So
these ops are cut out of the captured step, and MemoryX runs them once per step, in fp32, on the
gradient of the batch. The graph returns gradients as autograd has computed them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from waferstream.compiler.capture.capture_errors import line_of_node
from waferstream.compiler.capture.node_marks import LIMIT_KEY, TAKEN_KEY, UPDATE_KEY
from waferstream.compiler.capture.parameter_hooks import unhooked
from waferstream.compiler.ops import op_kind, op_name
from waferstream.compiler.storages import needed_for, overwritten, storages_of
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.kernel_source import kernel_source
from waferstream.core.roles.installation import GradientKernel

_HALF = {torch.bfloat16, torch.float16}


@dataclass(frozen=True)
class GradientOps:
    """The ops of a captured step on one gradient, in their order."""

    parameter: str
    raw: fx.Node  # the gradient as autograd has computed it
    changed: fx.Node  # the gradient for the update
    nodes: tuple[fx.Node, ...]


def gradients_of_updates(graph: fx.Graph, gradients: Mapping[str, fx.Node]) -> dict[str, fx.Node]:
    """Return the gradients as updates take them, and erase what the step writes to them later.

    Args:
        graph: The graph of a step.
        gradients: The gradients at its end, by parameter.

    Raises:
        ApplianceCompilationError: The step reads a gradient that it has overwritten.
    """
    found, late, ended = dict(gradients), [], set[int]()
    for node in graph.nodes:
        found |= dict.fromkeys(gradients.keys() & set(node.meta.get(TAKEN_KEY, ())), node)
    for node in graph.nodes:
        if (written := overwritten(node)) is not None and storages_of([written]).keys() & ended:
            late.append(node)
        updated = (found[name] for name in node.meta.get(UPDATE_KEY, ()) if name in found)
        ended |= storages_of(updated).keys()
    (output,) = graph.find_nodes(op="output")
    replaced = {gradients[name]: node for name, node in found.items()}
    output.args = ([replaced.get(node, node) for node in output.args[0]],)
    for node in reversed(late):
        if node.users:
            raise _refusal("a gradient is read after it was cleared", node)
        graph.erase_node(node)
    return found


def refuse_stale_reads(graph: fx.Graph, weights: Mapping[fx.Node, str]) -> None:
    """Refuse to compute with a weight that an optimizer of the same step has updated before.

    Raises:
        ApplianceCompilationError: The step does, and steps another optimizer afterwards.
    """
    marked = [node for node in graph.nodes if UPDATE_KEY in node.meta]
    names = dict(weights)
    updated: set[str] = set()
    for node in graph.nodes:
        if node.op == "call_function" and not node.meta["backward"]:
            read = {names[operand] for operand in node.all_input_nodes if operand in names}
            if op_name(node) in {"detach", "_to_copy"} and read:
                names[node] = read.pop()
            elif stale := sorted(read & updated):
                raise ApplianceCompilationError(
                    "a step computes with a weight that it has updated before",
                    code="weight-read-after-update",
                    where=line_of_node(node.meta.get("stack_trace")),
                    value=stale[0],
                    rule="MemoryX updates weights after the step; in a plain loop these are new",
                    remedy="trace two steps, and call one after the other in the loop",
                )
        updated |= set(node.meta.get(UPDATE_KEY, ()))
        if not marked or node is marked[-1]:
            return


def find_gradient_ops(graph: fx.Graph, gradients: Mapping[str, fx.Node]) -> list[GradientOps]:
    """Return the changes of a captured step to its gradients.

    Raises:
        ApplianceCompilationError: A gradient does not come from one backward pass alone.
    """
    finder = _Finder(graph)
    found = [finder.ops(name, changed) for name, changed in gradients.items()]
    return [ops for ops in found if ops.nodes]


def cut_gradient_ops(
    module: fx.GraphModule, found: Collection[GradientOps], weights: Mapping[fx.Node, str]
) -> tuple[GradientKernel, ...]:
    """Return the kernels of gradients, and erase their ops, which are no outputs any more.

    Raises:
        ApplianceCompilationError: An op reads more than the gradient, its own parameter and
            constants, writes to something else, or has no kernel.
    """
    kernels = []
    for ops in found:
        operands = _Operands(ops, weights)
        order = {node: place for place, node in enumerate(module.graph.nodes)}
        nodes = sorted({*ops.nodes, *operands.constant}, key=order.__getitem__)
        inputs = [ops.raw, *operands.weight]
        source = kernel_source(module, nodes, inputs, [ops.changed], lowering=_InFp32())
        kernels.append(GradientKernel(ops.parameter, source, bool(operands.weight)))
    for node in [node for ops in found for node in reversed(ops.nodes)]:
        if node.users:
            raise _refusal("a changed gradient is read by the rest of the step", node)
        module.graph.erase_node(node)
    return tuple(kernels)


class _Finder:
    """Finds the ops on each gradient of a graph."""

    def __init__(self, graph: fx.Graph) -> None:
        self._order = {node: place for place, node in enumerate(graph.nodes)}
        self._unhooked: dict[str, list[fx.Node]] = {}
        self._end: dict[str, int] = {}
        self._limit = len(self._order)  # the place where gradients are clipped or unscaled
        for node, place in self._order.items():
            for name in unhooked(node):
                self._unhooked.setdefault(name, []).append(node)
            self._end |= dict.fromkeys(node.meta.get(UPDATE_KEY, ()), place)
            if LIMIT_KEY in node.meta:
                self._limit = min(self._limit, place)

    def ops(self, name: str, changed: fx.Node) -> GradientOps:
        """Return the ops on the gradient of a parameter; ``changed`` is that for the update."""
        hooked = self._unhooked.get(name)
        if hooked is None and changed.meta["backward"] and not _is_touched(changed):
            return GradientOps(name, changed, changed, ())
        raws = set(hooked or _of_autograd(changed))
        if len(raws) != 1:
            raise ApplianceCompilationError(
                "the gradient of a parameter must come from one backward pass",
                code="gradient-of-several-passes",
                where=line_of_node(changed.meta.get("stack_trace")) or name,
                value=f"{name}: {len(raws)} gradients of autograd",
                rule="MemoryX repeats hooks, and ops on p.grad, on the gradient of the whole batch",
                remedy="add the losses and call backward() once, and change each gradient from "
                "itself alone",
            )
        (raw,) = raws
        dependents = self._dependents(name, raw, is_hooked=hooked is not None)
        nodes = tuple(_that_change(raw, changed, dependents))
        if late := [node for node in nodes if self._order[node] > self._limit]:
            raise _refusal("a gradient is changed after it was clipped or unscaled", late[0])
        return GradientOps(name, raw, changed, nodes)

    def _dependents(self, name: str, raw: fx.Node, *, is_hooked: bool) -> list[fx.Node]:
        """Return the ops before the update that depend on a gradient, in order."""
        found: set[fx.Node] = set()
        waiting = [raw]
        end = self._end.get(name, len(self._order))
        while waiting:
            users = [user for user in waiting.pop().users if user not in found]
            for user in users:
                is_of_body = user.op == "call_function" and self._order[user] <= end
                if is_of_body and (is_hooked or not user.meta["backward"]):
                    found.add(user)
                    waiting.append(user)
        return sorted(found, key=self._order.__getitem__)


def _is_touched(gradient: fx.Node) -> bool:
    """Return whether the step does anything with a gradient after its backward pass."""
    return any(not user.meta["backward"] for user in gradient.users if user.op == "call_function")


def _of_autograd(changed: fx.Node) -> Iterator[fx.Node]:
    """Yield the nodes of backward passes that a gradient is computed from after them."""
    seen, waiting = {changed}, [changed]
    while waiting:
        node = waiting.pop()
        if node.meta.get("backward"):
            yield node
            continue
        new = [operand for operand in node.all_input_nodes if operand not in seen]
        seen.update(new)
        waiting += new


def _that_change(raw: fx.Node, changed: fx.Node, dependents: list[fx.Node]) -> Iterator[fx.Node]:
    """Yield the ops, of those that depend on a gradient, that decide what the update takes.

    These are the ones that compute ``changed``, and those that write to memory of a value that
    does, through whatever view.
    """
    needed = {changed} & set(dependents)
    while True:
        memory = storages_of([raw, *needed]).keys()
        writes = {
            node
            for node in dependents
            if (written := overwritten(node)) is not None and storages_of([written]).keys() & memory
        }
        found = needed_for(needed | writes, dependents) & set(dependents)
        if found == needed:
            break
        needed = found
    yield from (node for node in dependents if node in needed)


class _Operands:
    """What the ops on a gradient read besides: constants, and the parameter itself."""

    def __init__(self, ops: GradientOps, weights: Mapping[fx.Node, str]) -> None:
        self.constant: list[fx.Node] = []  # ops that compute constants
        self.weight: list[fx.Node] = []  # the parameter, or nothing
        self._ops = ops
        self._weights = weights
        seen, waiting = {ops.raw, *ops.nodes}, list(ops.nodes)
        while waiting:
            node = waiting.pop()
            self._check(node)
            new = [operand for operand in node.all_input_nodes if operand not in seen]
            seen.update(new)
            waiting += filter(self._is_op, new)

    def _is_op(self, node: fx.Node) -> bool:
        """Note an operand; return whether it is an op, with operands of its own."""
        if self._weights.get(node) == self._ops.parameter:
            self.weight.append(node)
        elif node.op == "placeholder" or node.meta.get("seed") or unhooked(node):
            raise _refusal("a gradient is changed by more than itself", self._ops.nodes[-1])
        elif node.op == "call_function":
            self.constant.append(node)
            return True
        return False

    def _check(self, node: fx.Node) -> None:
        """Refuse an op that MemoryX cannot repeat."""
        if op_kind(node) in {"random", None}:
            raise _refusal(f"a gradient is changed by op {op_name(node)}", node)
        written = overwritten(node)
        while written is not None and written.op == "call_function":
            is_view = op_kind(written) == "view" or op_name(written) in {"detach", "alias"}
            written = written.all_input_nodes[0] if is_view else overwritten(written)
        if written is not None and written is not self._ops.raw:
            raise _refusal("what changes a gradient writes to something else", node)


class _InFp32:
    """Rewrites ops on a gradient of a half type for one in fp32."""

    def constant(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a constant as it is: ops promote types."""
        return tensor

    def call(self, node: fx.Node, copy: fx.Node) -> fx.Node:  # noqa: ARG002
        """Replace a half type that an op states."""
        copy.args = fx.node.map_aggregate(copy.args, _in_fp32)
        copy.kwargs = fx.node.map_aggregate(copy.kwargs, _in_fp32)
        return copy

    def result(self, node: fx.Node, copy: fx.Node) -> fx.Node:  # noqa: ARG002
        """Return a result as it is."""
        return copy


def _in_fp32(argument: Any) -> Any:
    return torch.float32 if argument in _HALF else argument


def _refusal(what: str, node: fx.Node) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        what,
        code="gradient-op-not-alone",
        where=line_of_node(node.meta.get("stack_trace")),
        value=op_name(node),
        rule="MemoryX repeats ops on a gradient once per step, on the gradient of the batch: they "
        "may read this gradient, its own parameter and constants",
        remedy="multiply by a mask, a number or a clamp; or let the loss have the effect",
    )
