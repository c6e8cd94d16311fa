"""What a role counts, as it reaches Ray's metrics."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from appliance.ray import metrics as module
from appliance.ray.metrics import RoleMetrics
from swarmx.links.memory import MemorySlab
from waferstream.core.messages.messages import Envelope, WeightsReady, WeightsReleased

SENT = [
    Envelope("br-0", "csx-0", WeightsReady(1, 0, 0, MemorySlab(96))),
    Envelope("br-0", "csx-1", WeightsReady(1, 0, 0, MemorySlab(96))),
    Envelope("br-0", "wgt-0", WeightsReleased(1, 0, 0)),
]


class Meter:
    """A metric that remembers its value by name and tag."""

    values: dict[tuple[str, str], float]

    def __init__(self, name: str, description: str, tag_keys: tuple[str, ...]) -> None:
        assert description
        assert tag_keys == ("role",)
        self._name = name

    def set_default_tags(self, tags: dict[str, str]) -> None:
        self._key = self._name, tags["role"]

    def inc(self, value: float) -> None:
        self.values[self._key] = self.values.get(self._key, 0) + value

    def set(self, value: float) -> None:
        self.values[self._key] = value


@pytest.fixture
def values() -> Iterator[dict[tuple[str, str], Any]]:
    Meter.values = {}
    with patch.multiple(module, Counter=Meter, Gauge=Meter):
        yield Meter.values


def test_counts_reach_ray_once(values: dict[tuple[str, str], float]) -> None:
    """However often they are reported; the end reports what is left."""
    role = RoleMetrics("br-0", period_s=1000)
    for envelope in SENT[:2]:
        role.note_sent(envelope)
    role.note_queue(3)
    role.note_queue(2)
    role.report()
    assert values["waferstream_queued_messages", "br-0"] == 3
    role.report()
    assert values["waferstream_queued_messages", "br-0"] == 0
    role.note_sent(SENT[2])
    role.note_wait(0.5)
    role.note_wait(0.25)
    role.step = 7
    role.close()
    assert values == {
        ("waferstream_sent_bytes", "br-0"): 192,
        ("waferstream_sent_messages", "br-0"): 3,
        ("waferstream_wait_seconds", "br-0"): 0.75,
        ("waferstream_step", "br-0"): 7,
        ("waferstream_queued_messages", "br-0"): 0,
    }
