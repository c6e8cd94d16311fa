"""Numbers of a caller that are too small are refused by name."""

from __future__ import annotations

from tests.support.errors import raises
from waferstream.core.arguments import check_least
from waferstream.core.errors import ConfigError


def test_check_least_names_the_first_number_below() -> None:
    """With its value and the rule."""
    check_least("a thing", legs=1, arms=2)
    check_least("a thing", 0, legs=0)
    with raises(ConfigError, "number-too-small") as refused:
        check_least("a thing", 2, legs=2, arms=1, heads=0)
    error = refused.value
    assert (error.where, error.value, error.rule) == ("arms", "1", "at least 2")
