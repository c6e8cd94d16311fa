"""Loggers of the vendor's client."""

from __future__ import annotations

import logging

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream_compat.utils.logs import (
    ClassLogger,
    collect_wsc_log_settings,
    get_level_name,
    named_class_logger,
    wsc_logger,
)


@named_class_logger("Short")
class Named(ClassLogger):
    pass


def test_a_class_has_a_logger_of_its_name() -> None:
    assert Named().logger.name == "Short"
    assert ClassLogger().logger.name == "ClassLogger"


@pytest.mark.parametrize(("level", "number"), [("info", 20), ("TRACE", 3), (35, 35)])
def test_level_names_have_numbers(level: str | int, number: int) -> None:
    assert get_level_name(level) == number


def test_an_unknown_level_is_refused() -> None:
    with raises(ConfigError, "unknown-log-level") as caught:
        get_level_name("WARNIN")
    assert "WARNING" in str(caught.value.remedy)


def test_levels_of_roles_are_collected() -> None:
    role = wsc_logger.getChild("wgt")
    try:
        role.setLevel(logging.DEBUG)
        assert collect_wsc_log_settings() == {"wgt": logging.DEBUG}
    finally:
        role.setLevel(logging.NOTSET)
