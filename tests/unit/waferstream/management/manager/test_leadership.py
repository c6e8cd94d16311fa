"""One management leads a store: while it lives, and until another one takes over."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.errors import raises
from waferstream.core.errors import ConfigError
from waferstream.management.manager.embedded import LEASE_S, this_process
from waferstream.management.manager.leadership import lead
from waferstream.management.model.leader import Leader
from waferstream.management.model.workflow import Process
from waferstream.management.store.opening import open_store
from waferstream.management.store.store import Store

NOW_S = 1e9


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path / "store.sqlite")
    yield store
    store.close()


def put(store: Store, host: str, pid: int, ticks: int = 0) -> None:
    process = Process(host=host, pid=pid, started_ticks=ticks)
    with store.change() as changes:
        changes.put_leader(Leader(process=process, time_s=NOW_S))


def try_to_lead(store: Store, now_s: float) -> Leader | None:
    with store.change() as changes:
        lead(changes, now_s)
        return changes.leader()


def test_first_leads_and_says_so_again(store: Store) -> None:
    own = this_process()
    assert try_to_lead(store, NOW_S) == Leader(process=own, time_s=NOW_S)
    assert try_to_lead(store, NOW_S + 1) == Leader(process=own, time_s=NOW_S)
    assert try_to_lead(store, NOW_S + 20) == Leader(process=own, time_s=NOW_S + 20)


def test_dead_process_of_this_host_is_replaced_at_once(store: Store) -> None:
    put(store, socket.gethostname(), this_process().pid)  # an earlier process of the same number
    assert try_to_lead(store, NOW_S) == Leader(process=this_process(), time_s=NOW_S)


def test_living_leader_stays(store: Store) -> None:
    init = Path("/proc/1/stat").read_text().rpartition(")")[2].split()
    put(store, socket.gethostname(), 1, int(init[19]))
    with raises(ConfigError, "store-is-led"):
        try_to_lead(store, NOW_S + 1e6)


def test_silent_leader_of_another_host_is_replaced(store: Store) -> None:
    put(store, "elsewhere", 1)
    with raises(ConfigError, "store-is-led"):
        try_to_lead(store, NOW_S + LEASE_S - 1)
    assert try_to_lead(store, NOW_S + LEASE_S + 1) is not None
