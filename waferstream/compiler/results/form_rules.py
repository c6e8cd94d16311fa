"""The form of each value of a step, op by op (waferstream.compiler.results.batch_forms).

Ops without a rule of their own follow their operands and the extents that grow with the samples:
ROWS stay ROWS while one dimension grows, an op that leaves none reduces over the batch, and one
with two relates samples to each other.

A value that follows from inputs alone is needed as that of the whole batch: a number of labels,
weights that are normalized over the batch, numbers of rows. Where a value of the model reads one
that is MIXED in a micro-batch, it gets the ``whole`` one
(waferstream.compiler.results.whole_values).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isnan, nan, prod

import torch
from torch import fx

from waferstream.compiler.derivation.step_inputs import MARK
from waferstream.compiler.ops import RANDOM_OPS, op_kind
from waferstream.compiler.results.batch_forms import (
    PLACES,
    ROWS,
    SAME,
    Addend,
    Form,
    Forms,
    Share,
    Value,
    joined,
    mixed,
    scaled,
    term,
)
from waferstream.compiler.results.label_counts import MEAN, NLL, NONE, SUM, LabelCounts, nll_of
from waferstream.compiler.results.sample_relations import (
    COPIES,
    RowPlaces,
    are_places,
    base_name,
    relates_samples,
)
from waferstream.compiler.results.two_sizes import TwoSizes

_CHECK = "_functional_assert_async"
_SAME_VALUES = COPIES | {"neg"}
_PRODUCTS = frozenset({"mm", "bmm", "dot", "mv"})
_LINEAR = _SAME_VALUES | _PRODUCTS | {"mul", "div", "sum", "mean", "add", "sub", "rsub"}
_SCATTERED = frozenset({"scatter_add", "index_add"})
_ZEROS = frozenset({"zeros", "zeros_like", "new_zeros"})
_FILLED = frozenset(
    {*_ZEROS, "ones_like", "new_ones", "full_like", "new_full", "empty_like", "new_empty"}
)
_GUARDS = frozenset(
    {"nan_to_num", "clamp", "clamp_min", "clamp_max", "maximum", "minimum", "relu", "abs"}
)
"""Ops that leave a usual loss as it is."""


def _argument(place: int, node: fx.Node) -> object:
    """Return the reduction of a loss: an argument, by default the mean."""
    return node.args[place] if len(node.args) > place else MEAN


_REDUCTIONS: dict[str, Callable[[fx.Node], object]] = {
    "mean": lambda _: MEAN,
    **dict.fromkeys(("sum", *_PRODUCTS), lambda _: SUM),
    "binary_cross_entropy": partial(_argument, 3),
    "binary_cross_entropy_with_logits": partial(_argument, 4),
    "mse_loss": partial(_argument, 2),
    "smooth_l1_loss": partial(_argument, 2),
    "huber_loss": partial(_argument, 2),
    "soft_margin_loss": partial(_argument, 2),
    "multi_margin_loss": partial(_argument, 5),
    "multilabel_margin_loss_forward": partial(_argument, 2),
}
"""How ops reduce samples, as aten's numbers of reductions."""


class FormRules:
    """Computes the forms of the values of a step.

    Args:
        sizes: The step at the size of a micro-batch and of the batch.
        labels: Tells means over labels from other quotients.

    Attributes:
        whole: Values that are read as those of the whole batch, with the ops that read them so.
        guards: Ops that keep a sum within limits, with the sum that they take.
    """

    def __init__(self, sizes: TwoSizes, labels: LabelCounts) -> None:
        self.sizes = sizes
        self.labels = labels
        self.forms = Forms()
        self._places = RowPlaces(sizes, labels.of_inputs)
        self.whole: dict[fx.Node, dict[fx.Node, None]] = {}
        self.guards: dict[fx.Node, fx.Node] = {}
        for node in sizes.part.graph.nodes:
            if node.op == "placeholder":
                self.forms[node] = ROWS if node in sizes.part.batch else SAME
            elif node.op == "get_attr":
                self.forms[node] = self._constant(node)
            elif node.op == "call_function" and not node.meta["backward"]:
                self.forms[node] = self._form(node)

    def result(self, node: fx.Node) -> Value:
        """Return the form of a loss or a result; it may be that of the whole batch."""
        return self._read(node, None)

    def is_whole(self, node: fx.Node) -> bool:
        """Return whether a result is a value of the whole batch."""
        return node in self.labels.of_inputs and self.forms[node] != self.result(node)

    def _constant(self, node: fx.Node) -> Value:
        if MARK in node.meta or self.sizes.is_equal_constant(node):  # an input of each step
            return ROWS if self.sizes.samples(node) else SAME
        return mixed(node)

    def _form(self, node: fx.Node) -> Value:
        if base_name(node) == _CHECK:  # of each micro-batch, whatever the condition reads
            return self.forms[node.args[-1]]  # type: ignore[index]
        if node in self.labels.of_inputs:
            value = self._made_of(node, [self.forms[each] for each in node.all_input_nodes])
            is_known = value.form not in {Form.TERMS, Form.MIXED} and value.factor == 1.0
            return value if is_known else mixed(node)
        if (count := self.labels.mean(node)) is not None and self._adds_samples(node):
            return term(node, Share(1.0, count))
        if (share := node.meta.get("share")) is not None:  # the product of a term and its share
            value = self.forms[node.all_input_nodes[0]]
            is_term = value.form is Form.TERMS
            return scaled(value, 1 / share) if is_term else term(node, Share(1.0))
        return self._made_of(node, [self._read(each, node) for each in node.all_input_nodes])

    def _adds_samples(self, node: fx.Node) -> bool:
        """Return whether what a mean over labels divides is a sum of losses of samples."""
        value = self.forms[node.args[0]]  # type: ignore[index]
        shares = value.terms.values()
        return value == ROWS or (value.form is Form.TERMS and set(shares) == {Share(1.0)})

    # Values that follow from inputs alone, as those of the model read them.

    def _read(self, node: fx.Node, reader: fx.Node | None) -> Value:
        """Return the form of an operand as an op reads it, ``reader`` None for a result."""
        value = self.forms[node]
        if node not in self.labels.of_inputs or value.form in {Form.SAME, Form.ROWS}:
            return value
        keeps = (
            value.form is Form.PLACES and reader is not None and self._places.picks(reader, node)
        )
        if keeps or not self._can_be_given(node):
            return value
        if reader is not None:
            self.whole.setdefault(node, {})[reader] = None
        return ROWS if self.sizes.samples(node) else SAME

    def _can_be_given(self, node: fx.Node) -> bool:
        """Return whether a value of the batch can be an input: as it is, or cut by its rows."""
        is_tensor = isinstance(node.meta["val"], torch.Tensor)
        samples = self.sizes.samples(node)
        return is_tensor and samples in {(), (0,)} and self.sizes.is_in_proportion(node)

    # Rules of ops.

    def made_of(self, node: fx.Node, operands: Sequence[Value]) -> Value:
        """Return the form of an op of a backward pass; a sum that it guards is no sum any more."""
        value = self._made_of(node, operands)
        return mixed(node) if self.guards.pop(node, None) is not None else value

    def _made_of(self, node: fx.Node, operands: Sequence[Value]) -> Value:
        """Return the form of an op's value from those of its operands."""
        name = base_name(node)
        if name == "_grouped_mm":  # whose third operand says which rows have which weights
            operands = operands[:2]
        forms = {value.form for value in operands}
        if not operands or name in _FILLED:
            return self._filled(node, name)
        if name == "where" and self._chooses_sum(node):
            return self._chosen(node)
        if Form.MIXED in forms:
            return next(value for value in operands if value.form is Form.MIXED)
        if Form.TERMS in forms:
            return self._of_terms(node, name, operands)
        return self._of_rows(node, name, operands)

    def _filled(self, node: fx.Node, name: str) -> Value:
        """Return the form of a value that no operand decides."""
        grows = bool(self.sizes.samples(node))
        if grows and name == "arange":
            return PLACES
        counts = grows and name in {"randperm", "eye", "linspace"}
        is_random = name in RANDOM_OPS
        if counts or (not is_random and self.sizes.numbers(node)):
            return mixed(node)
        return ROWS if grows else SAME

    def _of_terms(self, node: fx.Node, name: str, operands: Sequence[Value]) -> Value:
        """Return the form of what an op makes of terms; they stay terms if it is linear."""
        rows = any(value.form in {Form.ROWS, Form.PLACES} for value in operands)
        rule = _TERM_RULES.get(name)
        if rows or (rule is None and op_kind(node) != "view"):
            return mixed(node)
        return operands[0] if rule is None else rule(self, node)

    def _kept(self, node: fx.Node) -> Value:
        return self.forms[_first(node)]

    def _written(self, node: fx.Node) -> Value:
        return self._as_terms(node.args[1])  # type: ignore[arg-type]

    def _joined(self, node: fx.Node) -> Value:
        return joined(node, [self._as_terms(each) for each in node.all_input_nodes])

    def _added(self, node: fx.Node) -> Value:
        """Return the terms of a sum; a number that is added is one, too."""
        is_scaled = node.meta.get("scaled_addend", False)
        if MARK in node.meta or (self.sizes.numbers(node) and not is_scaled):
            return mixed(node)
        values = [self._as_terms(each) for each in node.all_input_nodes]
        if any(isinstance(arg, int | float) and arg for arg in node.args[:2]):
            values.append(term(Addend(node), Share(1.0, is_same=not is_scaled)))
        return joined(node, values)

    def _times(self, node: fx.Node) -> Value:
        """Return the terms of a product or a quotient, one operand of which is a sum."""
        values = [self._read(each, node) for each in node.all_input_nodes]
        sums = [value.form is Form.TERMS for value in values]
        factor = self._factor(node, base_name(node), values)
        is_quotient = base_name(node) == "div"
        if sum(sums) != 1 or node.kwargs or isnan(factor) or (is_quotient and not sums[0]):
            return mixed(node)
        return scaled(values[sums.index(True)], factor)

    def _chooses_sum(self, node: fx.Node) -> bool:
        branches = (each for each in node.args[1:] if isinstance(each, fx.Node))
        return any(self.forms[each].form is Form.TERMS for each in branches)

    def _chosen(self, node: fx.Node) -> Value:
        """Return the terms of one of two values that a condition chooses."""
        condition, *branches = node.args
        if self.forms[condition].form is not Form.SAME:  # type: ignore[index]
            return self._guarded(node)
        nodes = (each for each in branches if isinstance(each, fx.Node))
        return joined(node, [self._as_terms(each) for each in nodes])

    def _guarded(self, node: fx.Node) -> Value:
        """Return the terms of a sum that an op keeps within limits: those of the sum."""
        operands = node.args[base_name(node) == "where" :]
        read = [each for each in operands if isinstance(each, fx.Node)]
        sums = [each for each in read if self.forms[each].form is Form.TERMS]
        others = (self.forms[each].form for each in read if each not in sums)
        if len(sums) != 1 or set(others) - {Form.SAME} or node.meta["val"].numel() != 1:
            return mixed(node)
        self.guards[node] = sums[0]
        return self.forms[sums[0]]

    def _as_terms(self, node: fx.Node) -> Value:
        """Return the terms of a value; one that is the same for all micro-batches is a term."""
        value = self._read(node, None)
        is_same = value.form is Form.SAME
        return term(node, Share(value.factor, is_same=True)) if is_same else value

    def _of_rows(self, node: fx.Node, name: str, operands: Sequence[Value]) -> Value:
        """Return the form of what an op makes of rows, and of what is the same for all."""
        samples = self.sizes.samples(node)
        factor = self._factor(node, name, operands)
        if name in NLL or nll_of(node) is not None:
            return self._of_nll(node)
        if len(samples) > 1 or not self.sizes.is_in_proportion(node):
            return mixed(node)
        pairs = zip(node.all_input_nodes, operands, strict=False)
        places = [each for each, value in pairs if value.form is Form.PLACES]
        is_known = all(self._places.keeps(node, each) for each in places)
        if not is_known or isnan(factor) or relates_samples(self.sizes, node, self._says_samples):
            return mixed(node)
        if name in RANDOM_OPS or all(value.form is Form.SAME for value in operands):
            return Value(Form.ROWS if samples else Form.SAME, factor)
        if not samples:
            return self._reduced(node, name, factor)
        return PLACES if are_places(node, places) else Value(Form.ROWS, factor)

    def _of_nll(self, node: fx.Node) -> Value:
        """Return the form of a cross entropy that is no mean over labels of the inputs."""
        made = nll_of(node)
        if made is None or made.args[3] == NONE:
            return ROWS
        return term(node, Share(1.0)) if made.args[3] == SUM else mixed(node)

    def _reduced(self, node: fx.Node, name: str, factor: float) -> Value:
        """Return the form of a value without samples that is computed from rows."""
        rule = _REDUCTIONS.get(name)
        reduction = None if rule is None else rule(node)
        first = node.all_input_nodes[0]
        if reduction == MEAN:
            return term(node, Share(factor * self.sizes.growth(first) / self.sizes.growth(node)))
        if reduction == SUM or (name in _SCATTERED and base_name(first) in _ZEROS):
            return term(node, Share(factor))
        return mixed(node)

    def _says_samples(self, node: fx.Node) -> bool:
        """Return whether an index comes from the inputs, and names other rows than its own."""
        return node in self.labels.of_inputs and self.forms[node].form is not Form.PLACES

    def _factor(self, node: fx.Node, name: str, operands: Sequence[Value]) -> float:
        """Return the factor of the batch's value; NaN if a number enters it in another way."""
        factors = [value.factor for value in operands]
        numbers = [there / here if here else nan for here, there in self.sizes.numbers(node)]
        if name in {"mul", *_PRODUCTS}:
            return prod([*factors, *numbers])
        if name == "div":
            return factors[0] / prod([*factors[1:], *numbers])
        keeps_elements = op_kind(node) == "view" or name in {"repeat", "constant_pad_nd"}
        if numbers and not (keeps_elements or op_kind(node) == "norm"):  # of shapes
            return nan
        if all(factor == 1.0 for factor in factors):
            return 1.0
        is_linear = keeps_elements or (name in _LINEAR and not _adds_number(node, name))
        return factors[0] if is_linear and len(set(factors)) == 1 else nan


_TERM_RULES: dict[str, Callable[[FormRules, fx.Node], Value]] = {
    **dict.fromkeys({*_SAME_VALUES, "sum", "mean"}, FormRules._kept),
    **dict.fromkeys(("copy", "fill"), FormRules._written),
    **dict.fromkeys(("cat", "stack"), FormRules._joined),
    **dict.fromkeys(("add", "sub", "rsub"), FormRules._added),
    **dict.fromkeys(("mul", "div"), FormRules._times),
    **dict.fromkeys(_GUARDS, FormRules._guarded),
}
"""Rules of ops on terms; views keep them, and all others mix them."""


def _first(node: fx.Node) -> fx.Node:
    return node.all_input_nodes[0]


def _adds_number(node: fx.Node, name: str) -> bool:
    return name in {"add", "sub", "rsub"} and any(isinstance(a, int | float) for a in node.args[:2])
