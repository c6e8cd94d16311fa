"""Defaults of a site: folders that every job on its cluster mounts and imports from.

The environment variable CEREBRAS_WAFER_SCALE_CLUSTER_DEFAULTS names a YAML file with the keys
``mount_dirs`` and ``python_paths`` (cerebras_appliance 2.10, ``cluster_config.py``).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator

from waferstream.core.config import Config, load_yaml, validate
from waferstream.core.errors import ConfigError

SITE_DEFAULTS = "CEREBRAS_WAFER_SCALE_CLUSTER_DEFAULTS"

_Folders = Annotated[
    tuple[Path, ...],
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value or ()),
]


class SiteDefaults(Config):
    """Folders of a site, after those of the job."""

    mount_dirs: _Folders = ()
    python_paths: _Folders = ()


def site_defaults() -> SiteDefaults:
    """Return the defaults of this site; none without the environment variable.

    Raises:
        ConfigError: The file that it names is missing or malformed.
    """
    name = os.environ.get(SITE_DEFAULTS)
    if not name:
        return SiteDefaults()
    return validate(SiteDefaults, load_yaml(Path(name)), f"{name} ({SITE_DEFAULTS})")


def check_mounts(folders: Iterable[Path]) -> None:
    """Refuse a folder that a job mounts and that does not exist (``disable_mount_check: False``).

    Raises:
        ConfigError: A folder is missing.
    """
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(
                "a folder that is mounted must exist",
                code="mount-missing",
                where="mount_dirs, python_paths",
                value=folder,
                remedy="create it, or set disable_mount_check: True",
            )
