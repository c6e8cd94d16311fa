"""Numbers that are too small are refused by name."""

import pytest

from timing.least import check_least
from wsc.core.errors import ConfigError


def test_the_first_number_that_is_too_small_is_named():
    """With its owner, its value and the rule."""
    check_least("a thing", legs=1, arms=2)
    check_least("a thing", 0, legs=0)
    with pytest.raises(ConfigError, match="arms of a thing is too small") as refused:
        check_least("a thing", 2, legs=2, arms=1, heads=0)
    error = refused.value
    assert (error.where, error.value, error.rule) == ("arms", "1", "at least 2")
