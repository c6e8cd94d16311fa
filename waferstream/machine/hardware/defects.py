"""Defects of wafers: dead PEs and links."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import NonNegativeInt, model_validator

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware.sourced import sourced


class DefectSpec(Config):
    """Dead PEs and links of every wafer of the cluster: a random share, or those of a file.

    They come on top of the PEs that the published usable grid leaves out already.
    """

    pe_yield: float = sourced(
        1.0,
        "assumed",
        "share of PEs that work; redundancy makes the usable grid whole",
        ge=0.8,
        le=1,
    )
    link_yield: float = sourced(1.0, "assumed", "share of links that work", ge=0.8, le=1)
    seed: NonNegativeInt = sourced(0, "assumed", "any; one seed gives one wafer")
    map: Path | None = sourced(
        None, "assumed", "file of dead PEs and links (csnode.fabric.defects), not random ones"
    )

    @property
    def is_none(self) -> bool:
        """Whether all PEs and links work."""
        return self.map is None and self.pe_yield == self.link_yield == 1

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if self.map is not None and (self.pe_yield < 1 or self.link_yield < 1):
            raise ConfigError(
                "defects must come from a file or at random, not both",
                code="defects-of-two-origins",
                where="system.defects",
                value=f"map {self.map}, pe_yield {self.pe_yield}, link_yield {self.link_yield}",
                rule="one of the two",
                remedy="leave out the map or the yields in cluster.yaml",
            )
        return self
