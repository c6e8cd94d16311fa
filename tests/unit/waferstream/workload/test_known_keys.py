"""What is checked early is what the classes say later."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.workload.known_keys import check_keys


@pytest.mark.parametrize(
    ("section", "code"),
    [
        ({"name": "gpt2", "hiden_size": 64}, "unknown-key"),
        ({"name": "gpt2", "hidden_size": "wide"}, "wrong-type"),
    ],
    ids=["key", "type"],
)
def test_wrong_section_is_refused(section: dict[str, Any], code: str) -> None:
    with raises(ConfigError, code) as caught:
        check_keys(section, section["name"], "model")
    assert "hid" in str(caught.value)


def test_what_may_be_right_is_left_to_the_class() -> None:
    """Numbers in quotes, and sections of names that no package lists."""
    check_keys({"name": "gpt2", "hidden_size": "64"}, "gpt2", "model")
    check_keys({"name": "dit", "patch_size": [2, 2]}, "dit", "model")
    check_keys({"anything": 1}, "of another package", "model")
    check_keys({"class": "my:Model", "width": "wide"}, None, "model")
