"""``waferstream ctl``: folders that jobs can read, and copies of their data."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from appliance.site import SITE_DEFAULTS
from cstorch import distributed
from modelzoo.data.files.folders import cached
from tests.support.host.tools import rows, tool


def test_volumes_are_those_of_the_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is missing can be seen."""
    site = {"mount_dirs": [str(tmp_path), str(tmp_path / "missing")]}
    (tmp_path / "site.yaml").write_text(yaml.safe_dump(site))
    monkeypatch.setenv(SITE_DEFAULTS, str(tmp_path / "site.yaml"))
    found = {row["PATH"]: row["READABLE"] for row in rows(capsys, "ctl", "get", "volumes")}
    assert found == {"/": "yes", str(tmp_path): "yes", str(tmp_path / "missing"): "no"}


def test_worker_cache_is_shown_and_cleared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributed, "WORKER_CACHE_ROOT", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.h5").write_bytes(bytes(5000))
    copy = Path(cached(str(tmp_path / "data")))
    (shown,) = rows(capsys, "ctl", "get", "worker-cache")
    assert shown["USED"] != "0 B"
    tool(capsys, "ctl", "clear-worker-cache")
    assert not copy.exists()
