"""The first op from which a step on, as it was recorded, differs from the user's Python.

Both run on one micro-batch, with the weights before the step. The recording holds the ops that
Python called once; so both call the same ops, one after the other, unless the program does another
thing by now (a counter, a hook) or the recording lacks something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from cstorch.referee.op_log import LoggedOp, OpLog, RanStep
from cstorch.referee.rounds import Rounds
from cstorch.referee.verdict import LOSS, Verdict
from waferstream.compiler.capture.capture_errors import line_of_node
from waferstream.compiler.capture.captured import Captured
from waferstream.core.program.micro_batches import FLAG, Cut


@dataclass(frozen=True)
class Origin:
    """Where a step begins to differ, and what the user may do about it."""

    where: str
    remedy: str


class _Recorded(fx.Interpreter):
    """Runs a recorded step on real tensors, and keeps its ops.

    Buffers are copied, so that the step does not change those of the model.
    """

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self._node: fx.Node | None = None
        self._copies = {
            node.target: _copied(super(_Recorded, self).get_attr(node.target, (), {}))
            for node in module.graph.find_nodes(op="get_attr")
        }
        self.log = OpLog(lambda: None if self._node is None else _line(self._node))

    def run_node(self, n: fx.Node) -> Any:
        self._node = n
        return super().run_node(n)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:  # noqa: ARG002
        return self._copies[target]


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def _line(node: fx.Node) -> str | None:
    line, layer = line_of_node(node.meta.get("stack_trace")), node.meta.get("layer")
    return f"{line} (layer {layer})" if line and layer else line


def first_micro_batch(batch: Any, rounds: Rounds) -> tuple[Any, Rounds]:
    """Return the first micro-batch of a batch, a pytree, and how a run of it alone rounds."""
    alone = replace(rounds, cut=Cut(rounds.cut.size, 1))
    return pytree.tree_map_only(torch.Tensor, lambda x: x[: alone.cut.size], batch), alone


def run_recording(
    captured: Captured,
    masters: Mapping[str, torch.Tensor],
    batch: Any,
    rounds: Rounds,
    step: int,
) -> RanStep:
    """Run a recorded step on a micro-batch.

    Args:
        captured: The step, at the size of the micro-batch.
        masters: The weights before the step.
        batch: The micro-batch that the step reads, a pytree.
        rounds: How the run rounds and draws, for this micro-batch alone.
        step: The step, counted from 1.
    """
    weights = [masters[spec.name].detach() for spec in captured.parameters]
    streamed = [weight.to(rounds.precision.stream_dtype) for weight in weights]
    tensors = [x for x in pytree.tree_leaves(batch) if isinstance(x, torch.Tensor)]
    recorded = _Recorded(captured.module)
    with torch.no_grad(), recorded.log, rounds.draws(step):
        outputs = recorded.run(*streamed, *tensors)
    gradients = outputs[captured.num_results :]
    named = zip(captured.trained, gradients, strict=False)
    return RanStep(recorded.log.ops, {name: gradient.float() for name, gradient in named})


def first_difference(plain: RanStep, recorded: RanStep) -> str | None:
    """Return from which op on two passes give other gradients; None if they give the same.

    An op of one side alone may have no effect: it is named where other values follow at once, or
    where no common op has other values.
    """
    if plain.has_gradients_of(recorded):
        return None
    alone: str | None = None
    follows = False
    names = [[op.name for op in each.ops] for each in (plain, recorded)]
    matcher = SequenceMatcher(None, names[0], names[1], autojunk=False)
    for tag, i, end, j, _ in matcher.get_opcodes():
        if tag != "equal":
            ops, what = (
                (recorded.ops[j:], "in the recorded step alone")
                if tag == "insert"
                else (plain.ops[i:], "not in the recorded step")
            )
            alone, follows = f"{_place(ops[0])} is {what}", True
            continue
        for one, other in zip(plain.ops[i:end], recorded.ops[j:], strict=False):
            if not one.is_like(other):
                return alone if follows else f"{_place(one)} has other values in the recorded step"
            follows = False
    return alone


def _place(op: LoggedOp) -> str:
    return f"{op.line or 'outside of the model'}: aten.{op.name}"


def origin_of(verdict: Verdict, plain: RanStep, recorded: RanStep) -> Origin:
    """Return from where on a step differs.

    Args:
        verdict: The comparison of the step.
        plain: The pass of the user's Python on the first micro-batch.
        recorded: That of the recorded step.
    """
    if (op := first_difference(plain, recorded)) is not None:
        return Origin(op, "give what changes from step to step as a tensor of the batch")
    line = _line_of_loss(plain.ops) or "the loss"
    if any(each.name == LOSS for each in verdict.different):
        where = f"{line}: alike for a micro-batch, not when micro-batches are combined"
    else:
        names = ", ".join(each.name for each in verdict.different[:3])
        where = f"{line}: gradients are combined, or weights updated, otherwise: {names}"
    remedy = f"a mean over samples or labels, or one system with {FLAG} of the whole batch"
    return Origin(where, remedy)


def _line_of_loss(ops: Sequence[LoggedOp]) -> str | None:
    """Return the last line before that of the backward pass, with which a step ends."""
    return next((op.line for op in reversed(ops) if op.line not in (None, ops[-1].line)), None)
