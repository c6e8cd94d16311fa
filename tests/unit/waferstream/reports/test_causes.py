"""Causes in pictures: colours and labels."""

from dataclasses import fields

from timing.attribution import Attribution
from waferstream.reports.causes import CAUSE_COLORS, cause_labels


def test_every_cause_has_a_colour_of_its_own() -> None:
    """In the order in which they are stacked; two of one colour could not be told apart."""
    assert list(CAUSE_COLORS) == [field.name for field in fields(Attribution)]
    assert len(set(CAUSE_COLORS.values())) == len(CAUSE_COLORS)


def test_labels_stand_in_the_middle_of_what_can_be_seen() -> None:
    """Beside the last stack; a cause that is too thin in all of them has none."""
    stacks = (
        Attribution(compute=800, reduce=200),
        Attribution(compute=999, input=1),
        Attribution(compute=600, idle=400),
    )
    labels = cause_labels([stack.shares() for stack in stacks])
    seen = [(label.text, round(label.y, 9)) for label in labels]
    assert seen == [("compute", 0.3), ("reduce", 0.6), ("idle", 0.8)]
