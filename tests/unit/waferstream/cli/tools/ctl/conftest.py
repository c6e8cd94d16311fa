"""Fixtures of the verbs of ``waferstream ctl``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.management.embedded import Runs
from waferstream.management.client.site import ADDRESS, CONFIGURATION
from waferstream.management.model.inventory import QueueSpec


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin with an empty state folder, and without a management."""
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path / "state"))
    monkeypatch.delenv(ADDRESS, raising=False)
    monkeypatch.delenv(CONFIGURATION, raising=False)


@pytest.fixture
def runs() -> Iterator[Runs]:
    """Return runs that do not queue."""
    found = Runs()
    yield found
    found.client.close()


@pytest.fixture
def queued_runs() -> Iterator[Runs]:
    """Return runs that share three CS-3 and two MemoryX groups."""
    found = Runs(QueueSpec(systems=3, memoryx_groups=2).inventory("CS-3"))
    yield found
    found.client.close()
