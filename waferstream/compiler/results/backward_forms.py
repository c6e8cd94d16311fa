"""What a program computes in a backward pass: hooks of tensors, and its own autograd functions.

Autograd's formulas are linear in the gradients, so that those of micro-batches add up to that of
the batch. Code of a program need not be: a norm over the batch, a mean that is subtracted, a
division by the number of samples. Its ops get forms as those of a forward pass do. A gradient with
a row for each sample has ROWS, one without is a sum over samples. The gradient of a scalar holds
the share of the micro-batch already: of what is multiplied by it no factor is known, and none is
checked.
"""

from __future__ import annotations

from torch import fx

from waferstream.compiler.capture.node_marks import PROGRAM_KEY
from waferstream.compiler.ops import op_name
from waferstream.compiler.results.batch_forms import ROWS, SAME, Form, Share, Value, term
from waferstream.compiler.results.form_rules import FormRules
from waferstream.compiler.results.label_counts import LabelCounts
from waferstream.compiler.results.sample_relations import base_name
from waferstream.compiler.results.two_sizes import TwoSizes
from waferstream.core.errors import ApplianceCompilationError

_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})
_EXACT = 1e-6
"""How far a share may be from 1 by the rounding of its quotients."""


def refuse_mixed_gradients(sizes: TwoSizes) -> None:
    """Refuse gradients of a program's own code that do not add up to that of the batch.

    Args:
        sizes: The step at the size of a micro-batch and of the batch.

    Raises:
        ApplianceCompilationError: There is one.
    """
    own, of_whole = (
        [node for node in each.graph.nodes if node.meta.get(PROGRAM_KEY)]
        for each in (sizes.part, sizes.whole)
    )
    if own:
        sizes.add_backward(own, of_whole)
        _Backward(sizes, own).check()


class _Backward:
    """The forms of the nodes that a program makes in a backward pass.

    Args:
        sizes: The step at two sizes, whose nodes are paired.
        own: The nodes, in order.
    """

    def __init__(self, sizes: TwoSizes, own: list[fx.Node]) -> None:
        self._sizes, self._own = sizes, dict.fromkeys(own)
        self._rules = FormRules(sizes, LabelCounts(sizes.part))
        part = sizes.part
        (output,) = part.graph.find_nodes(op="output")
        self._gradients = set(output.args[0][len(part.result_positions) :])
        self._of_inputs = set(self._rules.labels.of_inputs)
        self._counting: set[fx.Node] = set()  # depends on a number of the inputs of a micro-batch
        self._unscaled: set[fx.Node] = set()  # what no factor is known of

    def check(self) -> None:
        """Raise for a gradient that does not add up."""
        for node in self._own:
            operands = {each: self._operand(each) for each in node.all_input_nodes}
            self._unscaled |= {node} if self._unscaled & operands.keys() else set()
            self._counting |= {node} if self._counting & operands.keys() else set()
            if operands and self._of_inputs >= operands.keys():
                self._of_inputs.add(node)
                value = self._operand(node)
            else:
                value = self._rules.made_of(node, list(operands.values()))
            self._rules.forms[node] = value
            if self._leaves(node) and not self._adds_up(node, value):
                raise _refusal(value.culprit if value.culprit in self._own else node)

    def _operand(self, node: fx.Node) -> Value:
        """Return the form of an operand; that of a gradient of autograd is noted."""
        has_samples = bool(self._sizes.samples(node))
        if node in self._of_inputs:
            self._counting |= set() if has_samples or _is_constant(node) else {node}
            return ROWS if has_samples else SAME
        is_gradient = node.meta.get("backward") or node.meta.get("seed")
        if node in self._own or not is_gradient or node.op != "call_function":
            return self._rules.forms[node]
        value = ROWS if has_samples else term(node, Share(1.0))
        if not has_samples and node.meta["val"].numel() == 1:
            self._unscaled.add(node)
            value = SAME
        self._rules.forms[node] = value
        return value

    def _leaves(self, node: fx.Node) -> bool:
        """Return whether autograd, or an update, takes a value; a step may return any."""
        is_read = any(user not in self._own and user.op != "output" for user in node.users)
        return is_read or node in self._gradients

    def _adds_up(self, node: fx.Node, value: Value) -> bool:
        """Return whether a gradient that leaves the program's code is a part of the batch's."""
        if node in self._unscaled:
            return value.form is not Form.MIXED
        if node in self._counting:
            return False
        if value.form is Form.TERMS:
            shares = value.terms.values()
            return all(not each.is_same and abs(each.factor - 1) < _EXACT for each in shares)
        if value.form is Form.ROWS:
            return abs(value.factor - 1) < _EXACT
        return value.form is Form.SAME and base_name(node) in _ZEROS


def _is_constant(node: fx.Node) -> bool:
    """Return whether a value follows from constants alone."""
    return node.op != "placeholder" and all(map(_is_constant, node.all_input_nodes))


def _refusal(node: fx.Node) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        f"a backward pass of the program relates the samples of a batch: op {op_name(node)}",
        code="gradient-relates-samples",
        where=node.meta[PROGRAM_KEY],
        rule="a micro-batch has the gradients of its samples alone, and those of all micro-batches "
        "are added up",
        remedy="compute each row of a gradient from that row, change the gradient of a parameter "
        "in a hook of the parameter, or train on one system with "
        "csx.performance.micro_batch_size of the batch size",
    )
