"""Verification: some gradients are computed on a second system, too, and compared bit for bit.

The unit of comparison is what a node sends in one round: the subtrees over its micro-batches, of
every bucket. A kernel has the same bits on every node, so two systems that differ cannot both be
right. Their votes open a dispute; the step runs again, a third system computes the same unit, and
the majority says who was wrong.

Everybody draws the same units from the seed, so no message says what is verified.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from waferstream.core.errors import ApplianceCorruptionError
from waferstream.core.messages.messages import Vote
from waferstream.core.program.schedule import Rounds
from waferstream.core.rng import stream_key
from waferstream.core.roles.names import node_name

_KEYS = 1 << 63  # of waferstream.core.rng.stream_key


class Unit(NamedTuple):
    """What is computed twice: the micro-batches of ``node`` in one round of a step."""

    step: int
    round: int
    node: int


class Ballot(NamedTuple):
    """The digest of a unit's gradients, as one system computed them."""

    system: str
    digest: bytes


@dataclass(frozen=True)
class Dispute:
    """A unit about which systems differ."""

    unit: Unit
    ballots: tuple[Ballot, ...]

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems that have voted."""
        return tuple(sorted({ballot.system for ballot in self.ballots}))

    def wrong(self) -> tuple[str, ...]:
        """Return the systems that most others contradict; none if the votes do not decide.

        A system whose two votes differ was wrong once.
        """
        supporters = {
            ballot.digest: {b.system for b in self.ballots if b.digest == ballot.digest}
            for ballot in self.ballots
        }
        most = max(map(len, supporters.values()))
        right = [digest for digest, systems in supporters.items() if len(systems) == most]
        if len(right) > 1:
            return ()
        return tuple(sorted({b.system for b in self.ballots if b.digest != right[0]}))


@dataclass(frozen=True)
class Verification:
    """Which units of a job are verified, and by whom.

    Attributes:
        fraction: The share of all units.
        seed: The seed of the draw.
        dispute: The unit on which systems are to vote again; then no other is verified.
    """

    fraction: float = 0.0
    seed: int = 0
    dispute: Dispute | None = None

    @property
    def is_on(self) -> bool:
        """Whether anything is verified."""
        return self.fraction > 0.0

    def second(self, unit: Unit, rounds: Rounds) -> int | None:
        """Return the node that computes a unit, too; None if it is not verified."""
        if not self.is_on or not rounds.of_node(unit.round, unit.node):
            return None
        key = stream_key(self.seed, "verify", *unit)
        others = [node for node in range(rounds.num_nodes) if node != unit.node]
        if self.dispute is None:
            return others[key % len(others)] if key < self.fraction * _KEYS else None
        if unit != self.dispute.unit:
            return None
        fresh = [node for node in others if node_name(node) not in self.dispute.systems]
        return (fresh or others)[0]

    def owners(self, step: int, round_index: int, node: int, rounds: Rounds) -> tuple[int, ...]:
        """Return the nodes whose units of a round ``node`` computes, too."""
        if not self.is_on:
            return ()
        return tuple(
            owner
            for owner in range(rounds.num_nodes)
            if self.second(Unit(step, round_index, owner), rounds) == node
        )

    def micro_batches(self, step: int, node: int, rounds: Rounds) -> list[int]:
        """Return the micro-batches that a node takes in a step: its own, and those of its votes."""
        return [
            micro_batch
            for index in range(rounds.count)
            for owner in (node, *self.owners(step, index, node, rounds))
            for micro_batch in rounds.of_node(index, owner)
        ]

    def num_taken(self, steps: range, rounds: Rounds) -> int:
        """Return how many micro-batches all nodes take in these steps."""
        if not self.is_on:
            return len(steps) * rounds.num_micro_batches
        nodes = range(rounds.num_nodes)
        return sum(len(self.micro_batches(step, node, rounds)) for step in steps for node in nodes)


UNVERIFIED = Verification()
"""The verification of a job that asks for none."""


class DisputedBitsError(ApplianceCorruptionError):
    """Two systems have computed different gradients from the same inputs."""

    def __init__(self, dispute: Dispute) -> None:
        step, round_index, node = dispute.unit
        systems = " and ".join(dispute.systems)
        super().__init__(
            f"{systems} differ in the gradients of the same micro-batches",
            code="bits-disputed",
            where=f"step {step}, round {round_index}, micro-batches of {node_name(node)}",
            value=", ".join(f"{b.system}: {b.digest.hex()}" for b in dispute.ballots),
            rule="every system computes the same bits (runtime.verify)",
            remedy="set init.autorestart: the step runs again on three systems, and the one that "
            "is wrong is left out",
        )
        self.dispute = dispute

    def __reduce__(self) -> tuple[object, ...]:
        return DisputedBitsError, (self.dispute,)


class Comparison:
    """The votes of one job, as they arrive at a server.

    Args:
        verification: What is verified.
    """

    def __init__(self, verification: Verification) -> None:
        self._dispute = verification.dispute
        self._first: dict[Unit, Ballot] = {}

    def take(self, system: str, step: int, votes: Iterable[Vote]) -> None:
        """Compare a system's votes on a step with those of others.

        Raises:
            DisputedBitsError: Two systems differ, or have voted again on what they differed in.
        """
        for round_index, node, digest in votes:
            unit, ballot = Unit(step, round_index, node), Ballot(system, digest)
            first = self._first.pop(unit, None)
            if first is None:
                self._first[unit] = ballot
            elif self._dispute is not None and self._dispute.unit == unit:
                ballots = (*self._dispute.ballots, first, ballot)
                raise DisputedBitsError(Dispute(unit, ballots))
            elif first.digest != ballot.digest:
                raise DisputedBitsError(Dispute(unit, (first, ballot)))
