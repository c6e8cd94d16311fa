"""The votes of a CS node on gradients that a second node computes, too.

The rules are those of waferstream.core.roles.verification.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import torch

from csnode.gradients import GradientSum
from waferstream.core.messages.messages import Vote
from waferstream.core.messages.partial_sum import PartialSum
from waferstream.core.program.schedule import Rounds
from waferstream.core.roles.verification import Unit, Verification

_DIGEST_BYTES = 16


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
