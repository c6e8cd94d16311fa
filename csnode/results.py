"""What a CS node says of a step: its results, values that are not finite, and its votes.

A node votes on gradients that a second node computes, too; the rules are those of
waferstream.core.roles.verification.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from csnode.gradients import GradientSum
from csnode.micro_batch import MicroBatch
from waferstream.core.messages.messages import StepDone, Vote
from waferstream.core.messages.partial_sum import PartialSum
from waferstream.core.messages.watch import ORIGINS, Finding
from waferstream.core.program.program import Program
from waferstream.core.program.schedule import Rounds
from waferstream.core.program.segment import Segment
from waferstream.core.roles.role import Report
from waferstream.core.roles.verification import Unit, Verification

_DIGEST_BYTES = 16


def note_results(
    report: Report, program: Program, step: int, batches: Iterable[MicroBatch], *, keeps_all: bool
) -> None:
    """Note the results of micro-batches in a report; tensors only where it ``keeps_all``."""
    unread = {*program.state.results, *program.norms.results}
    if not keeps_all:
        unread |= {result.position for result in program.tensor_results}
    places = range(program.guarded.stop)
    for batch in batches:
        batch.read_numbers()
        results = tuple(None if place in unread else batch.results[place] for place in places)
        report.results[step, batch.index] = results


def with_results(done: StepDone, report: Report) -> StepDone:
    """Return the end of a step with its results and findings, which outlive the node then."""
    step = done.step
    results = tuple((index, values) for (of, index), values in report.results.items() if of == step)
    findings = tuple(finding for finding in report.findings if finding.step == step)
    return replace(done, results=results, findings=findings)


class NotFinite(NamedTuple):
    """The first value of a micro-batch that is not finite; ``position`` is in the schedule."""

    step: int
    micro_batch: int
    position: int
    tensor: str

    def finding(self, segment: Segment, role: str) -> Finding:
        """Return the role's report about it."""
        origin, tensor = ORIGINS.index("micro-batch"), f"{self.tensor} ({segment.phase})"
        return Finding(
            self.step, origin, self.micro_batch, self.position, segment.layer, tensor, role
        )


def not_finite(segment: Segment, batch: MicroBatch) -> str | None:
    """Return the name of the first value of a segment that is not finite.

    A micro-batch of which that is known, or without labels, is not examined. Minus infinity is
    allowed in what a forward segment stashes: masks of attention consist of it.
    """
    if not (batch.is_finite and batch.has_labels):
        return None
    for name, value in _values(segment, batch):
        is_bad = torch.isnan(value) | (value == torch.inf)
        if segment.phase == "backward" or name in segment.gradients:
            is_bad = ~torch.isfinite(value)
        if bool(is_bad.any()):
            return name
    return None


def _values(segment: Segment, batch: MicroBatch) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the outputs of a segment: values for later segments, gradients, results."""
    for name in segment.outputs:
        value = batch.values[name]
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            yield name, value
    yield from batch.gradients.items()
    batch.read_numbers()
    for place, name in segment.results:
        result = batch.results[place]
        if isinstance(result, float):
            yield name, torch.tensor(result)


class Voting:
    """What one node votes on in the current step: its own gradients, and those of other nodes.

    Args:
        node: The node.
        verification: What is verified.
        rounds: The rounds of a step.
    """

    def __init__(self, node: int, verification: Verification, rounds: Rounds) -> None:
        self.num_micro_batches = 0
        """Micro-batches of other nodes in the current round."""
        self._node = node
        self._verification = verification
        self._rounds = rounds
        self._round = 0
        self._digests: dict[int, list[bytes]] = {}  # of each bucket, by owner; of this round
        self._votes: list[Vote] = []

    def begin(self, step: int, round_index: int) -> tuple[int, ...]:
        """Begin a round; return the micro-batches of other nodes that this one computes, too."""
        if not self._verification.is_on:
            return ()
        unit = Unit(step, round_index, self._node)
        owners = self._verification.owners(*unit, self._rounds)
        self._round = round_index
        self._digests = {owner: [] for owner in owners}
        if self._verification.second(unit, self._rounds) is not None:
            self._digests[self._node] = []
        found = tuple(i for owner in owners for i in self._rounds.of_node(round_index, owner))
        self.num_micro_batches = len(found)
        return found

    def note(self, gradients: Mapping[int, Sequence[GradientSum]]) -> None:
        """Note the gradients of a segment, by owner, and release those of other nodes."""
        for owner, sums in gradients.items():
            if owner in self._digests:
                self._digests[owner].append(_digest(_bytes_of(each.part) for each in sums))
            if owner != self._node:
                for each in sums:
                    each.part.release()

    def end_round(self) -> None:
        """Vote on what was noted in the current round."""
        self._votes += (
            Vote(self._round, owner, _digest(digests)) for owner, digests in self._digests.items()
        )

    def take(self) -> tuple[Vote, ...]:
        """Return the votes since the last call."""
        votes, self._votes = tuple(self._votes), []
        return votes


def _bytes_of(part: PartialSum) -> bytes | memoryview:
    return part.payload.view(torch.uint8).numpy().data


def _digest(parts: Iterable[bytes | memoryview]) -> bytes:
    total = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        total.update(part)
    return total.digest()
