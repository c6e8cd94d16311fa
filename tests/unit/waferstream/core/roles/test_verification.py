"""Verification: who computes what twice, and what votes decide."""

import pickle

import pytest

from tests.support.errors import raises
from waferstream.core.messages.messages import Vote
from waferstream.core.program.schedule import Rounds
from waferstream.core.roles.verification import (
    Ballot,
    Comparison,
    Dispute,
    DisputedBitsError,
    Unit,
    Verification,
)

ROUNDS = Rounds(num_micro_batches=11, num_nodes=4)
UNIT = Unit(3, 0, 1)
RIGHT, WRONG, OTHER = b"right", b"wrong", b"other"


def units(steps: int) -> list[Unit]:
    """All units of some steps that have a micro-batch."""
    return [
        Unit(step, index, node)
        for step in range(1, steps + 1)
        for index in range(ROUNDS.count)
        for node in range(ROUNDS.num_nodes)
        if ROUNDS.of_node(index, node)
    ]


def test_everything_is_computed_by_another_node_at_fraction_1() -> None:
    """And by nobody without a fraction, nor a unit without micro-batches."""
    whole = Verification(1.0)
    for unit in units(5):
        second = whole.second(unit, ROUNDS)
        assert second in set(range(4)) - {unit.node}
        assert unit.node in whole.owners(unit.step, unit.round, second, ROUNDS)
        assert Verification().second(unit, ROUNDS) is None
    assert whole.second(Unit(1, 2, 3), ROUNDS) is None


@pytest.mark.parametrize("fraction", [0.05, 0.5])
def test_share_of_units_is_the_fraction(fraction: float) -> None:
    drawn = [Verification(fraction, 7).second(unit, ROUNDS) is not None for unit in units(500)]
    assert sum(drawn) / len(drawn) == pytest.approx(fraction, rel=0.1)
    other = [Verification(fraction, 8).second(unit, ROUNDS) is not None for unit in units(500)]
    assert drawn != other


def test_dispute_is_computed_by_a_node_that_has_not_voted() -> None:
    """And nothing else is verified; of two nodes the same one votes again."""
    dispute = Dispute(UNIT, (Ballot("csx-1", WRONG), Ballot("csx-0", RIGHT)))
    again = Verification(1.0, dispute=dispute)
    assert [unit for unit in units(5) if again.second(unit, ROUNDS) is not None] == [UNIT]
    assert again.second(UNIT, ROUNDS) == 2
    assert again.second(UNIT, Rounds(4, num_nodes=2)) == 0


@pytest.mark.parametrize(
    ("ballots", "wrong"),
    [
        ([("a", WRONG), ("b", RIGHT), ("a", WRONG), ("c", RIGHT)], ("a",)),
        ([("a", WRONG), ("b", RIGHT), ("a", OTHER), ("c", RIGHT)], ("a",)),
        ([("a", WRONG), ("b", RIGHT), ("a", RIGHT), ("c", RIGHT)], ("a",)),
        ([("a", RIGHT), ("b", WRONG), ("a", RIGHT), ("c", RIGHT)], ("b",)),
        ([("a", RIGHT), ("b", WRONG), ("a", RIGHT), ("b", RIGHT)], ("b",)),
        ([("a", WRONG), ("b", RIGHT), ("a", WRONG), ("b", RIGHT)], ()),
        ([("a", WRONG), ("b", RIGHT), ("a", WRONG), ("c", OTHER)], ()),
    ],
)
def test_majority_of_systems_decides(ballots: list[tuple[str, bytes]], wrong: tuple[str]) -> None:
    """Each system counts once for a digest; equally many supporters decide nothing."""
    dispute = Dispute(UNIT, tuple(Ballot(*ballot) for ballot in ballots))
    assert dispute.wrong() == wrong


def test_votes_that_differ_open_a_dispute() -> None:
    """Equal ones open none; the error survives pickling with the votes."""
    comparison = Comparison(Verification(1.0))
    comparison.take("csx-1", 3, [Vote(0, 1, RIGHT), Vote(1, 1, RIGHT)])
    comparison.take("csx-2", 3, [Vote(0, 1, RIGHT)])
    with raises(DisputedBitsError, "bits-disputed") as caught:
        comparison.take("csx-0", 3, [Vote(1, 1, WRONG)])
    expected = Dispute(Unit(3, 1, 1), (Ballot("csx-1", RIGHT), Ballot("csx-0", WRONG)))
    copied = pickle.loads(pickle.dumps(caught.value))
    assert copied.dispute == caught.value.dispute == expected
    assert str(copied) == str(caught.value)


def test_votes_on_a_dispute_are_all_reported() -> None:
    """Also where they agree now: the first ballots tell who was wrong."""
    before = (Ballot("csx-1", WRONG), Ballot("csx-0", RIGHT))
    comparison = Comparison(Verification(1.0, dispute=Dispute(UNIT, before)))
    comparison.take("csx-1", 3, [Vote(0, 1, RIGHT)])
    with raises(DisputedBitsError, "bits-disputed") as caught:
        comparison.take("csx-2", 3, [Vote(0, 1, RIGHT)])
    ballots = (*before, Ballot("csx-1", RIGHT), Ballot("csx-2", RIGHT))
    assert caught.value.dispute == Dispute(UNIT, ballots)
