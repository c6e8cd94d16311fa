"""Defaults of a site are read from the file that the environment names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from appliance.site import SITE_DEFAULTS, check_mounts, site_defaults
from cstorch import distributed
from tests.support.errors import raises
from waferstream.config.sections.backend import ClusterConfig, search_path
from waferstream.core.errors import ConfigError


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "site.yaml"
    path.write_text("python_paths: /site/code\nmount_dirs: [/site/data]\n")
    monkeypatch.setenv(SITE_DEFAULTS, str(path))
    return path


def test_site_defaults_come_after_those_of_the_job(site: Path) -> None:
    job = ClusterConfig(python_paths=(Path("/job/code"),))
    assert search_path(job) == (Path("/job/code"), Path("/site/code"))
    assert site_defaults().mount_dirs == (Path("/site/data"),)


def test_site_defaults_reach_a_program(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    distributed.ClusterConfig(python_paths=["/job/code"]).for_cluster()
    assert sys.path[-2:] == ["/job/code", "/site/code"]


def test_site_without_file_has_no_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SITE_DEFAULTS, raising=False)
    assert search_path(ClusterConfig()) == ()


def test_wrong_site_file_is_explained(site: Path) -> None:
    site.write_text("python_path: /site/code\n")
    with raises(ConfigError, "unknown-key"):
        site_defaults()
    site.unlink()
    with raises(ConfigError, "file-not-readable"):
        site_defaults()


def test_mounts_are_checked_on_request(tmp_path: Path, site: Path) -> None:
    check_mounts([tmp_path])
    search_path(ClusterConfig(disable_mount_check=True))
    with raises(ConfigError, "mount-missing"):
        search_path(ClusterConfig(disable_mount_check=False))
