"""How the values of a micro-batch make up those of the whole batch.

Plain PyTorch computes a step on the whole batch; a system has one micro-batch. Each value of the
forward pass has one of these forms:

    SAME     equal for every micro-batch: weights, constants, and what follows from them
    ROWS     a row for each sample, which depends on that sample alone
    PLACES   numbers of rows, such as ``arange(batch)``
    TERMS    a sum over the micro-batches, each with a share: losses, and sums of losses
    MIXED    anything else, such as a product of two sums, or scores between samples

A *term* is the value at which samples are added up (``sum``, ``mean``, ``cross_entropy``). The
value of the batch is the sum over all micro-batches of share * value: 1 for a sum, the samples of
the micro-batch over those of the batch for a mean. The shares of a mean over labels depend on the
batch (waferstream.core.program.label_means).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

from torch import fx

from waferstream.compiler.storages import overwritten, storages_of


class Form(Enum):
    """How a value of a micro-batch relates to that of the batch."""

    SAME = "same"
    ROWS = "rows"
    PLACES = "places"
    TERMS = "terms"
    MIXED = "mixed"


@dataclass(frozen=True)
class LabelCount:
    """What a mean over labels divides by: labels that are not ignored, or the sum of ``mask``.

    ``target`` are the labels, ``weight`` the weights of classes, if there are any.
    """

    target: fx.Node | None = None
    weight: fx.Node | None = None
    ignored: int = 0
    mask: fx.Node | None = None


@dataclass(frozen=True)
class Addend:
    """The number that an op adds to a sum."""

    op: fx.Node


Term = fx.Node | Addend


@dataclass(frozen=True)
class Share:
    """What a term of a micro-batch counts in that of the batch.

    That is a constant, times the micro-batch's part of the labels where they are counted. What
    ``is_same`` for all micro-batches counts that constant in all of them together.
    """

    factor: float
    count: LabelCount | None = None
    is_same: bool = False

    def times(self, factor: float) -> Share:
        """Return the share of a multiple of the term."""
        return replace(self, factor=self.factor * factor)


@dataclass(frozen=True)
class Value:
    """The form of a value.

    ``factor`` is that of ROWS or SAME in whose ops a number differs between the sizes: the value of
    the batch is ``factor`` times that of a micro-batch. ``culprit`` is where a MIXED value began.
    """

    form: Form
    factor: float = 1.0
    terms: Mapping[Term, Share] = field(default_factory=lambda: MappingProxyType({}))
    culprit: fx.Node | None = None


SAME, ROWS, PLACES = Value(Form.SAME), Value(Form.ROWS), Value(Form.PLACES)


def mixed(node: fx.Node) -> Value:
    """Return the form of a value of which a micro-batch cannot compute its part."""
    return Value(Form.MIXED, culprit=node)


def term(each: Term, share: Share) -> Value:
    """Return the form of a value at which samples are added up."""
    return Value(Form.TERMS, terms={each: share})


def scaled(value: Value, factor: float) -> Value:
    """Return the form of terms that count ``factor`` times as much."""
    return Value(Form.TERMS, terms={t: share.times(factor) for t, share in value.terms.items()})


def joined(node: fx.Node, values: Sequence[Value]) -> Value:
    """Return the form of what has all terms of some values."""
    found: dict[Term, Share] = {}
    for value in values:
        if value.form is not Form.TERMS:
            return mixed(node)
        for each, share in value.terms.items():
            if found.setdefault(each, share) != share:
                return mixed(node)
    return Value(Form.TERMS, terms=found)


class Forms:
    """The forms of the values of a step so far; of those that ops write over others, too."""

    def __init__(self) -> None:
        self._of: dict[fx.Node, Value] = {}
        self._written: dict[int, Value] = {}

    def __getitem__(self, node: fx.Node) -> Value:
        """Return the form of a value; gradients are MIXED."""
        own = self._of.get(node) or mixed(node)
        if not self._written:
            return own
        written = [self._written[each] for each in storages_of([node]) if each in self._written]
        return written[0] if written else own

    def __setitem__(self, node: fx.Node, value: Value) -> None:
        """Set the form of a value; what an op writes reaches all that share its memory."""
        self._of[node] = value
        if overwritten(node) is None or value.form not in {Form.TERMS, Form.MIXED}:
            return
        for storage in storages_of([node]):
            before = self._written.get(storage, value)
            self._written[storage] = joined(node, [before, value])
