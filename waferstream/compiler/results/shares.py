"""Let the micro-batches of a step add up to what plain PyTorch computes on the whole batch.

A loss, or a result, that is a mean over samples, a sum over them, or a mean over labels needs no
other op: the constant at which the backward pass starts, and the weight of a micro-batch in the
result, say what a micro-batch counts. Terms that count differently are each multiplied by their
share, forward and backward, which makes all of them sums; a mean over labels becomes the quotient
of a sum and of the number of labels of the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isclose

from torch import fx

from waferstream.compiler.capture.capture_errors import line_of_node
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.ops import RANDOM_OPS, op_name
from waferstream.compiler.results.backward_forms import refuse_mixed_gradients
from waferstream.compiler.results.batch_forms import Form, Share, Term, Value
from waferstream.compiler.results.form_rules import FormRules
from waferstream.compiler.results.label_counts import LabelCounts
from waferstream.compiler.results.term_edits import TermEdits, cut_guard
from waferstream.compiler.results.two_sizes import Again, TwoSizes
from waferstream.compiler.results.whole_values import given_whole
from waferstream.core.errors import ApplianceCompilationError
from waferstream.core.program.kernel_source import KernelSource
from waferstream.core.program.label_means import LabelMean

log = logging.getLogger("waferstream")

_SUM = Share(1.0)


@dataclass(frozen=True)
class Shared:
    """A step of a micro-batch that adds up to that of the batch.

    ``totals`` are the positions of the results that are sums over the micro-batches; ``counts`` is
    the kernel of the label means, ``values`` that of the values of the whole batch;
    ``guards`` are the kernels of ops that guard a loss, with their lines.
    """

    captured: Captured
    label_means: tuple[LabelMean, ...] = ()
    counts: KernelSource | None = None
    totals: tuple[int, ...] = ()
    values: KernelSource | None = None
    guards: tuple[tuple[KernelSource, str], ...] = ()


def share_batch(part: Captured, whole: Captured, again: Again | None = None) -> Shared:
    """Return the step of a micro-batch, edited so that the micro-batches add up to the batch.

    Args:
        part: The step of a micro-batch; it must not be used again.
        whole: The step of the whole batch, likewise.
        again: Records the step of a micro-batch once more, to tell numbers that follow from samples
            from those that Python changes.

    Raises:
        ApplianceCompilationError: The loss relates samples of different micro-batches, or what the
            program computes in a backward pass does.
    """
    sizes = TwoSizes(part, whole, again)
    refuse_mixed_gradients(sizes)
    editor = _Editor(sizes)
    while editor.edits():
        pass
    return editor.shared()


class _Editor:
    """Edits the graph of a step until every sum has terms that count alike."""

    def __init__(self, sizes: TwoSizes) -> None:
        self._sizes = sizes
        self._part = sizes.part
        self._quotients: list[fx.Node] = []
        self._guards: list[tuple[KernelSource, str]] = []
        self._rules = self._analyzed()

    def edits(self) -> bool:
        """Cut out a guard, or edit terms that count differently; return whether there are any."""
        for guard, value in self._rules.guards.items():
            self._cut(guard, value)
            return True
        found: dict[Term, Share] = {}
        for uneven in self._uneven():
            found |= uneven.terms
        labels = [each for each, share in found.items() if share.count is not None]
        scaled = {
            each: share
            for each, share in found.items()
            if share.count is None and self._exact(share) != _SUM
        }
        edits = TermEdits(self._sizes, self._rules)
        if labels:
            self._quotients += edits.divide(labels)
        else:
            edits.multiply(scaled, self._mean.factor)
        if found:
            self._rules = self._analyzed()
        return bool(found)

    def shared(self) -> Shared:
        """Return the edited step, with the weights of its micro-batches."""
        self._warn_of_mixed_results()
        loss, results = self._loss(), self._results()
        kinds = {place: self._kind(value) for place, value in results.items()}
        seed = None if loss is None else self._kind(loss)
        _with_seeds(self._part, self._mean.factor if seed is None or seed.count else seed.factor)
        counted = list(dict.fromkeys(s.count for s in (seed, *kinds.values()) if s and s.count))
        means = tuple(
            LabelMean(
                count=position,
                results=tuple(
                    place for place, kind in kinds.items() if kind and kind.count == count
                ),
                is_loss=seed is not None and seed.count == count,
            )
            for position, count in enumerate(counted)
        )
        captured, whole = given_whole(self._sizes, self._rules)
        captured = replace(captured, batch_draws=self._batch_draws())
        labels = LabelCounts(captured, self._quotients)
        return Shared(
            captured,
            means,
            labels.kernel(counted) if counted else None,
            tuple(place for place, kind in kinds.items() if kind == _SUM),
            whole,
            tuple(self._guards),
        )

    @property
    def _mean(self) -> Share:
        return Share(self._sizes.rows / self._sizes.rows_of_batch)

    def _analyzed(self) -> FormRules:
        rules = FormRules(self._sizes, LabelCounts(self._part, self._quotients))
        for seed in self._part.seeds:
            value = rules.result(seed.args[0])  # type: ignore[arg-type]
            if value.form in {Form.MIXED, Form.ROWS, Form.PLACES}:
                raise _relates_samples(value.culprit or seed)
        return rules

    def _loss(self) -> Value | None:
        """Return the form of the sum of all losses; None if a step trains nothing."""
        values = [self._rules.result(seed.args[0]) for seed in self._part.seeds]  # type: ignore[arg-type]
        if all(value.form is Form.SAME for value in values):
            return values[0] if values else None
        found = [pair for value in values for pair in value.terms.items()]
        return Value(Form.TERMS, terms=dict(found))

    def _results(self) -> dict[int, Value]:
        """Return the forms of the results of the user's step, by position."""
        found = {
            place: self._rules.result(node)
            for place, node in self._part.results.items()
            if place < self._part.num_results or place >= self._first_guard
        }
        return {place: value for place, value in found.items() if value.form is Form.TERMS}

    def _warn_of_mixed_results(self) -> None:
        """Warn of numbers that a step returns and that micro-batches cannot add up to."""
        for place, node in self._part.results.items():
            value = self._rules.result(node)
            if (
                value.form is Form.MIXED
                and not node.meta["val"].ndim
                and place < self._part.num_results
            ):
                culprit = value.culprit or node
                log.warning(
                    "A result of the step is the mean over micro-batches, not that of the batch: "
                    "%s relates samples (%s)",
                    op_name(culprit),
                    line_of_node(culprit.meta.get("stack_trace")) or "outside the model",
                )

    def _batch_draws(self) -> frozenset[int]:
        """Return the random ops, counted, whose numbers belong to no sample.

        Plain PyTorch draws them once for the batch.
        """
        drawing = [node for node in self._part.graph.nodes if op_name(node) in RANDOM_OPS]
        return frozenset(i for i, node in enumerate(drawing) if not self._sizes.samples(node))

    def _uneven(self) -> Iterator[Value]:
        """Yield the loss and the results whose terms count differently.

        Labels are counted for scalars alone.
        """
        loss, results = self._loss(), self._results()
        if loss is not None and self._kind(loss) is None:
            yield loss
        for place, value in results.items():
            kind = self._kind(value)
            is_tensor = bool(self._part.results[place].meta["val"].ndim)
            if kind is None or (is_tensor and kind.count is not None):
                yield value

    def _kind(self, value: Value) -> Share | None:
        """Return the share that all terms of a sum have, None if they have several.

        What is the same for all micro-batches counts like a mean: shares of means add up to one.
        """
        if value.form is not Form.TERMS:
            return self._mean
        same = [share for share in value.terms.values() if share.is_same]
        own = {self._exact(share) for share in value.terms.values() if not share.is_same}
        if len(own) != 1 or any(share.factor != 1.0 for share in same):
            return self._mean if not own and not same else None
        (kind,) = own
        if kind == _SUM and not same:
            return kind
        is_mean = kind == self._mean or (kind.count is not None and kind.factor == 1.0)
        return kind if is_mean else None

    def _exact(self, share: Share) -> Share:
        """Return a share without the rounding of quotients of numbers."""
        usual = (self._mean.factor, 1.0)
        return replace(
            share, factor=next((f for f in usual if isclose(f, share.factor)), share.factor)
        )

    def _cut(self, guard: fx.Node, value: fx.Node) -> None:
        """Cut a guard out of the step, which returns what it guards as a further result."""
        found = cut_guard(self._part, guard, value)
        if found is None:
            raise _relates_samples(guard)
        self._guards.append(found)
        positions = self._part.result_positions
        (output,) = self._part.graph.find_nodes(op="output")
        returned = list(output.args[0])
        output.args = ([*returned[: len(positions)], value, *returned[len(positions) :]],)
        place = self._first_guard + len(self._guards) - 1
        self._part = replace(self._part, result_positions=(*positions, place))
        self._sizes.part = self._part
        self._rules = self._analyzed()

    @property
    def _first_guard(self) -> int:
        return self._part.num_results + len(self._part.update.state.contributions)


def _with_seeds(part: Captured, share: float) -> Captured:
    """Let the backward passes of a step start at a constant."""
    for node in part.seeds:
        node.update_arg(1, share)
    return part


def _relates_samples(node: fx.Node) -> ApplianceCompilationError:
    return ApplianceCompilationError(
        f"the loss is no sum over samples: op {op_name(node)} relates those of the whole batch",
        code="loss-relates-samples",
        where=line_of_node(node.meta.get("stack_trace")),
        rule="a micro-batch is computed without the others, so a loss must be a sum or a mean of "
        "losses of samples; numbers that follow from the inputs alone may be those of the batch",
        remedy="train on one system with csx.performance.micro_batch_size of the batch size, state "
        "group_of_samples in the model if consecutive samples share a loss, or leave the term out",
    )
