"""Tell means over samples from sums, where the micro-batches of a batch differ in size.

A micro-batch with n of B samples counts with n / B in a mean over samples. In a sum (divided by a
constant, or not at all) every micro-batch counts alike. The power of n with which a scalar grows
says which one it is; it follows from the ops of the same step at two sizes:

    mean(x)    0        sum(x)    1, if it adds more elements in a larger micro-batch
    x / c      one less, if c is proportional to the samples
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import isclose
from typing import Any

from torch import fx

from wsc.compiler.capture.captured import Captured
from wsc.compiler.ops import op_name
from wsc.compiler.storages import tensors_of
from wsc.core.errors import ApplianceCompilationError

_NONE, _SUM = 0, 2  # aten's numbers of reduction="none" and "sum"
_REDUCTION_ARGUMENT = {
    "nll_loss_forward": 3,
    "nll_loss2d_forward": 3,
    "binary_cross_entropy": 3,
    "binary_cross_entropy_with_logits": 4,
    "mse_loss": 2,
    "smooth_l1_loss": 2,
    "huber_loss": 2,
    "soft_margin_loss": 2,
}
_ADDED = frozenset({"add", "sub", "rsub"})
_FACTORS = {"mul": 1, "div": -1}
_UNCHANGED = frozenset(
    {"detach", "alias", "clone", "_to_copy", "view", "_unsafe_view", "reshape", "neg", "mean"}
    | {"squeeze", "unsqueeze", "getitem"}
)
_KEEPS_ELEMENTS = _UNCHANGED - {"mean"}
_OF_ELEMENTS = frozenset({"pow", "abs", "sum"})


def sums_over_samples(larger: Captured, smaller: Captured) -> tuple[tuple[int, ...], bool]:
    """Return the positions of the results that are sums over samples, and whether the loss is one.

    Args:
        larger: A step at the size of full micro-batches.
        smaller: The same step at the size of short ones.

    Raises:
        ApplianceCompilationError: A result adds a mean and a sum, so that no weight fits both.
    """
    growth = _Growth(_samples(larger), _samples(smaller))
    results = [growth.of(*pair) for pair in _pairs(larger, smaller)]
    losses = [
        growth.of(a.args[0], b.args[0]) for a, b in zip(larger.seeds, smaller.seeds, strict=True)
    ]
    for powers in (*results, *losses):
        if powers not in (set(), {0}, {1}):
            raise ApplianceCompilationError(
                "micro-batches of two sizes need a result that is a mean over samples, or a sum",
                code="result-neither-mean-nor-sum",
                value=f"terms that grow with the powers {sorted(powers)} of the samples",
                rule="a micro-batch has one weight in a result",
                remedy="divide sums by the number of samples, or choose a micro_batch_size that "
                "divides the batch",
            )
    totals = tuple(place for place, powers in enumerate(results) if powers == {1})
    return totals, {1} in losses


def loss_adds_samples(captured: Captured) -> bool:
    """Return whether the loss surely has a term that is a sum over samples.

    That is a term which nothing multiplies: with ``reduction="sum"``, or a sum over the elements of
    an input and what is compared with them. Others cannot be told from means at one size.
    """
    return any(_adds_samples(seed.args[0], captured.batch) for seed in captured.seeds)


def _adds_samples(node: Any, batch: Collection[fx.Node]) -> bool:
    if not isinstance(node, fx.Node):
        return False
    name = op_name(node)
    if name in _ADDED:
        return any(_adds_samples(operand, batch) for operand in node.args[:2])
    if name in _KEEPS_ELEMENTS:
        return _adds_samples(node.args[0], batch)
    return _reduction(node) == _SUM or (name == "sum" and _has_elements_of(batch, node.args[0]))


def _has_elements_of(batch: Collection[fx.Node], node: Any) -> bool:
    """Return whether a value has an element for each one of an input, compared with it as it is."""
    if not isinstance(node, fx.Node) or node in batch:
        return isinstance(node, fx.Node)
    name = op_name(node)
    if name in _ADDED or _reduction(node) == _NONE:
        return any(_has_elements_of(batch, operand) for operand in node.args[:2])
    return name in _KEEPS_ELEMENTS | _OF_ELEMENTS and _has_elements_of(batch, node.args[0])


def _reduction(node: fx.Node) -> object:
    """Return aten's number of the reduction of a loss; None for any other op."""
    place = _REDUCTION_ARGUMENT.get(op_name(node))
    return node.args[place] if place is not None and len(node.args) > place else None


def _pairs(larger: Captured, smaller: Captured) -> Iterator[tuple[fx.Node | None, fx.Node | None]]:
    """Yield the same result at both sizes; None for one that depends on the step state."""
    for place in range(larger.num_results):
        yield larger.results.get(place), smaller.results.get(place)


def _samples(captured: Captured) -> int:
    return captured.inputs[0].shape[0]


@dataclass(frozen=True)
class _Growth:
    """Powers of the samples with which values grow between two sizes."""

    larger: int
    smaller: int

    def of(self, a: Any, b: Any) -> set[int]:
        """Return the powers of the terms of a value; empty for a constant."""
        a, b = _unchanged(a), _unchanged(b)
        if not (isinstance(a, fx.Node) and isinstance(b, fx.Node)):
            power = self._power(a, b)
            return {power} if power else set()
        name, operands = op_name(a), list(zip(a.args, b.args, strict=False))
        if op_name(b) != name:
            return {0}
        if name in _ADDED:
            return self.of(*operands[0]) | self.of(*operands[1])
        if name in _FACTORS:
            first, second = (self.of(*pair) or {0} for pair in operands[:2])
            return {x + _FACTORS[name] * y for x in first for y in second}
        if name == "sum":
            more = self._power(*(_elements(n.args[0]) / _elements(n) for n in (a, b)))
            return {power + more for power in self.of(*operands[0]) or {0}}
        return {int(_reduction(a) == _SUM)}

    def _power(self, a: Any, b: Any) -> int:
        """Return the power of a number with these values at both sizes; 0 if it has none."""
        if not (isinstance(a, int | float) and isinstance(b, int | float)) or not a or not b:
            return 0
        ratio = self.larger / self.smaller
        found = (power for power in (1, -1) if isclose(a / b, ratio**power, rel_tol=1e-9))
        return next(found, 0)


def _unchanged(value: Any) -> Any:
    """Return what a value follows from by ops that keep its power; one size may lack some."""
    while isinstance(value, fx.Node) and op_name(value) in _UNCHANGED:
        value = value.args[0]
    return value


def _elements(node: Any) -> int:
    return sum(tensor.numel() for tensor in tensors_of(node))
