"""How roles take hosts, as cluster.yaml names it; read before torch is imported."""

from __future__ import annotations

from typing import Literal

Strategy = Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"]
ServerStrategy = Literal["PACK", "SPREAD"]
