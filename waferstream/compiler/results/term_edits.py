"""Edit the terms of a step's sums, forward and backward, until all of them are sums.

Ops that keep a loss within limits (``nan_to_num``, ``clamp``, ``where(isfinite(loss), ...)``) act
on the loss of the batch, which no micro-batch knows. As long as the loss is within the limits they
change nothing. So they are cut out of the step, and the coordinator runs them on the loss of the
batch: a step whose loss they would have changed ends the run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_map_only

from waferstream.compiler.capture.capture_errors import line_of_node
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.derivation.step_inputs import MARK
from waferstream.compiler.ops import op_name
from waferstream.compiler.results.batch_forms import Addend, Form, LabelCount, Share, Term
from waferstream.compiler.results.form_rules import FormRules
from waferstream.compiler.results.label_counts import SUM, counter, nll_of
from waferstream.compiler.results.two_sizes import TwoSizes
from waferstream.core.program.kernel_source import KernelSource, kernel_source

_NLL_BACKWARD = frozenset({"nll_loss_backward", "nll_loss2d_backward"})
_aten = torch.ops.aten


class TermEdits:
    """Edits terms of the step of a micro-batch.

    Args:
        sizes: The step of a micro-batch, which is edited, and that of the batch.
        rules: The forms of its values.
    """

    def __init__(self, sizes: TwoSizes, rules: FormRules) -> None:
        self._sizes = sizes
        self._rules = rules

    def divide(self, means: Collection[Term]) -> list[fx.Node]:
        """Let means over labels divide a sum by what the labels of the batch count.

        Returns those that are quotients already, and now count as such.
        """
        nodes = [node for node in means if isinstance(node, fx.Node)]
        for node in nodes:
            if (made := nll_of(node)) is not None:
                self._divide_nll(node, made)
        return [node for node in nodes if nll_of(node) is None]

    def _divide_nll(self, loss: fx.Node, made: fx.Node) -> None:
        """Let a cross entropy divide the sum of its losses."""
        other = self._sizes.of_whole(made)
        assert other is not None, "a loss is no view"
        divisor, of_whole = _inserted_count(made), _inserted_count(other)
        for pair in zip(divisor, of_whole, strict=True):
            self._sizes.add(*pair)
        quotient = self._inserted(loss, _aten.div.Tensor, divisor[-1])
        self._replace_forward(loss, quotient)
        self._change_gradient(made, _aten.div.Tensor, divisor[-1])
        made.update_arg(3, SUM)
        for node in backward_of(made):
            if op_name(node) in _NLL_BACKWARD:
                node.update_arg(4, SUM)

    def multiply(self, shares: Mapping[Term, Share], mean: float) -> None:
        """Multiply terms by their shares, forward and backward.

        ``mean`` is the share of a micro-batch in what is the same for all.
        """
        for each, share in shares.items():
            factor = share.factor * (mean if share.is_same else 1.0)
            if isinstance(each, Addend):
                each.op.args = tuple(
                    arg * factor if isinstance(arg, int | float) else arg for arg in each.op.args
                )
                each.op.meta["scaled_addend"] = True
                continue
            product = self._inserted(each, _aten.mul.Tensor, factor)
            product.meta["share"] = factor
            self._replace_forward(each, product)
            self._change_gradient(each, _aten.mul.Tensor, factor)

    def _inserted(self, node: fx.Node, target: Any, operand: Any) -> fx.Node:
        """Return a new node after a term: an op on it and an operand."""
        with node.graph.inserting_after(node):
            new = node.graph.call_function(target, (node, operand))
        new.meta = _meta_of_new(node, node)
        return new

    def _replace_forward(self, node: fx.Node, new: fx.Node) -> None:
        """Let the sums that a term goes into take the new node instead."""
        for user in list(node.users):
            is_op = user.op == "call_function" and not user.meta["backward"] and user is not new
            if user in self._sizes.part.seeds or (is_op and self._is_sum(user)):
                user.replace_input_with(node, new)

    def _is_sum(self, node: fx.Node) -> bool:
        return self._rules.forms[node].form is Form.TERMS

    def _change_gradient(self, node: fx.Node, target: Any, operand: Any) -> None:
        """Apply an op to the gradient that enters the backward pass of a value."""
        own = backward_of(node)
        for gradient in entering(own):
            readers = [reader for reader in own if gradient in reader.all_input_nodes]
            with node.graph.inserting_before(readers[0]):
                changed = node.graph.call_function(target, (gradient, operand))
            changed.meta = _meta_of_new(readers[0], gradient)
            for reader in readers:
                reader.replace_input_with(gradient, changed)


def _meta_of_new(beside: fx.Node, like: fx.Node) -> dict[str, Any]:
    """Return the entries of a new node beside another one, with a value like that of a third."""
    value = like.meta["val"]
    kept = {key: entry for key, entry in beside.meta.items() if key != MARK}
    return {**kept, "val": value.new_empty(value.shape)}


def _inserted_count(made: fx.Node) -> list[fx.Node]:
    """Return new nodes before a cross entropy that count its labels, at least one."""
    _, target, weight, _, ignored = made.args
    added: list[fx.Node] = []
    with made.graph.inserting_before(made):
        total = counter(made.graph, LabelCount(target, weight, ignored), added)  # type: ignore[arg-type]
        least = 1 if weight is None else torch.finfo(torch.float32).tiny
        added.append(made.graph.call_function(_aten.clamp_min.default, (total, least)))
    for node in added:
        operands = tree_map_only(fx.Node, lambda each: each.meta["val"], node.args)
        node.meta = {**made.meta, "seq_nr": None, "val": node.target(*operands)}  # type: ignore[operator]
    return added


def backward_of(node: fx.Node) -> list[fx.Node]:
    """Return the ops of the backward pass of a value of the forward pass, in order."""
    made = nll_of(node) or node
    number = made.meta["seq_nr"]
    same = [
        each
        for each in node.graph.nodes
        if each.op == "call_function" and each.meta.get("seq_nr") == number
    ]
    # An op without a gradient has the number of the op before.
    if next((each for each in same if not each.meta["backward"]), None) is not made:
        return []
    return [each for each in same if each.meta["backward"] and not each.meta.get("is_gradient_acc")]


def entering(backward: Collection[fx.Node]) -> list[fx.Node]:
    """Return the gradients that the backward pass of a value starts from; no constants."""
    read = (operand for node in backward for operand in node.all_input_nodes)
    return [
        operand
        for operand in dict.fromkeys(read)
        if operand not in backward
        and operand.op == "call_function"
        and (operand.meta["backward"] or operand.meta["seed"])
    ]


def cut_guard(part: Captured, guard: fx.Node, value: fx.Node) -> tuple[KernelSource, str] | None:
    """Cut an op that guards a sum out of a step.

    Args:
        part: The step, which is edited.
        guard: The op.
        value: The sum.

    Returns:
        The kernel from the sum to what the op makes of it, and the op with its line; None if the op
        reads more than the sum and constants.
    """
    cone = _cone(guard, value)
    if any(node.op == "placeholder" for node in cone):
        return None
    ordered = [node for node in part.graph.nodes if node in cone and node.op == "call_function"]
    kernel = kernel_source(part.module, ordered, [value], [guard])
    own = backward_of(guard)
    gradients = entering(own)
    for node in own:
        for user in [user for user in node.users if user not in own]:
            user.replace_input_with(node, gradients[0])
    for node in reversed(own):
        part.graph.erase_node(node)
    guard.replace_all_uses_with(value)
    part.graph.erase_node(guard)
    line = line_of_node(guard.meta.get("stack_trace")) or "outside the model"
    return kernel, f"{op_name(guard)}, {line}"


def _cone(guard: fx.Node, value: fx.Node) -> set[fx.Node]:
    """Return the nodes that an op is computed from, down to the sum."""
    found: set[fx.Node] = set()
    waiting = [guard]
    while waiting:
        node = waiting.pop()
        if node not in found and node is not value:
            found.add(node)
            waiting += node.all_input_nodes
    return found
