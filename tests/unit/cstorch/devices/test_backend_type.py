"""Kinds of device."""

from __future__ import annotations

from cstorch.devices.backend_type import BackendType
from tests.support.errors import raises
from waferstream.core.errors import ConfigError


def test_kinds_have_names_in_any_case() -> None:
    kind = BackendType.from_str("csx")
    assert kind is BackendType.CSX
    assert kind == "CSX"
    assert (kind.is_csx, kind.is_cpu, kind.is_gpu) == (True, False, False)


def test_an_unknown_kind_is_refused() -> None:
    with raises(ConfigError, "unknown-backend-type"):
        BackendType.from_str("TPU")
