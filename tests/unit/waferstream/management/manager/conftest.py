"""The appliance of each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.management.appliance import Appliance


@pytest.fixture
def appliance(tmp_path: Path) -> Iterator[Appliance]:
    made = Appliance(tmp_path)
    yield made
    made.store.close()
