"""Memory of the host: what is free, and why a process was killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from appliance.placement import host_memory
from appliance.placement.host_memory import free_bytes, oom_kills, swap_bytes, why_killed


def host(folder: Path, limit: str, used: int) -> int:
    (folder / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable:     500 kB\nHugePages: 0\n")
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    return free_bytes(folder / "meminfo", folder)


def test_free_bytes_are_within_the_limit_of_the_container(tmp_path: Path) -> None:
    assert host(tmp_path, "max", 1000) == 500 * 1024
    assert host(tmp_path, "10000", 4000) == 6000
    assert host(tmp_path, "10000", 11000) == 0
    assert host(tmp_path, "999999999", 0) == 500 * 1024
    (tmp_path / "memory.max").unlink()
    assert free_bytes(tmp_path / "meminfo", tmp_path) == 500 * 1024


def test_numbers_that_a_kernel_does_not_state_are_none(tmp_path: Path) -> None:
    """Swap space, and processes that were ended."""
    host(tmp_path, "max", 0)
    assert swap_bytes(tmp_path / "meminfo") == 0
    assert oom_kills(tmp_path / "meminfo") == 0


def test_killed_process_is_explained_by_what_the_kernel_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was ended before the run began explains nothing."""
    vmstat = tmp_path / "vmstat"
    monkeypatch.setattr(host_memory, "oom_kills", lambda: oom_kills(vmstat))
    monkeypatch.setattr(host_memory, "_KILLS_BEFORE", 2)
    vmstat.write_text("nr_free_pages 5\noom_kill 2\n")
    assert "somebody may have killed it" in why_killed()
    vmstat.write_text("nr_free_pages 5\noom_kill 3\n")
    assert "it has ended 1 on this host" in why_killed()
