"""The changes of Ray's private modules: they fit this release, end with the block, or are left."""

import logging
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from appliance.ray.connection import connection, patches

NEWS = """
Ray has changed what appliance/ray/connection/patches.py changes in it. Find the new name in Ray's
source, and the same effect, or take the entry out of NAMES: with runtime.fast_start: false, and
where a name is missing, Ray starts by its public interface, in twice the time.
"""


def test_this_release_of_ray_has_every_name() -> None:
    assert patches.missing_names() == [], NEWS


def test_this_release_of_ray_takes_what_is_given() -> None:
    from ray._private import parameter, services

    given = {"no_monitor", "include_log_monitor", "node_ip_address", "session_name"}
    assert given <= signature(parameter.RayParams).parameters.keys(), NEWS
    assert "process_group" in signature(services.ConsolePopen.__bases__[0]).parameters, NEWS
    assert patches.workers_script().is_file(), NEWS


def test_changes_end_with_the_block() -> None:
    def now() -> list[object]:
        return [getattr(import_module(module), name) for module, name in patches.NAMES]

    before = now()
    with patches.patched({}, lambda _: None, Path("launcher")):
        assert all(a is not b for a, b in zip(now(), before, strict=True))
    assert now() == before


def test_a_release_without_a_name_starts_plainly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And the log says so."""
    names = (*patches.NAMES, ("ray._private.services", "gone"), ("ray._private.gone", "name"))
    monkeypatch.setattr(patches, "NAMES", names)
    assert patches.missing_names() == ["ray._private.services.gone", "ray._private.gone.name"]
    with caplog.at_level(logging.WARNING), connection._fast_start():
        pass
    assert "starts slowly" in caplog.text
