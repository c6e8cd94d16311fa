"""Questions to the hosts of a Ray cluster; Ray is simulated."""

from typing import Any
from unittest.mock import MagicMock

import pytest
import ray

from appliance.ray.hosts.survey import _asked
from tests.support.errors import raises
from waferstream.core.errors import ClusterJobInitError


def test_task_that_a_host_does_not_start_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would run there later, when nobody waits for its answer."""
    started, cancelled = ["answered", "late"], []
    task = MagicMock()
    task.return_value.remote.side_effect = started

    def cancel(future: str, **_: Any) -> None:
        cancelled.append(future)

    monkeypatch.setattr(ray, "remote", lambda **_: task)
    monkeypatch.setattr(ray, "wait", lambda *_, **__: (["answered"], ["late"]))
    monkeypatch.setattr(ray, "cancel", cancel)
    nodes = [{"NodeID": f"{i:056x}", "NodeManagerAddress": f"10.0.0.{i}"} for i in (1, 2)]
    with raises(ClusterJobInitError, "host-not-answering") as caught:
        _asked(nodes, 0.1, int)
    assert caught.value.where == "10.0.0.2"
    assert cancelled == ["late"]
