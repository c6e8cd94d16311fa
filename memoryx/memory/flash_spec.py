"""The configuration of the flash tier, which the command line reads before torch is imported."""

from __future__ import annotations

from pathlib import Path

from pydantic import PositiveInt, field_validator

from waferstream.core.config import Config


class FlashSpec(Config):
    """Section ``runtime.flash`` of cluster.yaml."""

    path: Path
    """Folder on a fast disk, on every host that has weight servers."""

    resident_bytes: PositiveInt
    """DRAM of each weight server (and of each replica) for masters and optimizer state; an eighth
    more while a checkpoint is written in the background."""

    @field_validator("path", mode="after")
    @classmethod
    def _absolute(cls, path: Path) -> Path:
        return path.absolute()  # roles have other working folders
