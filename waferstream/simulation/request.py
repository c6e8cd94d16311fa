"""What a simulation is asked for."""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.reports.economics import PriceSpec


@dataclass(frozen=True)
class SimulationRequest:
    """What ``--simulate`` is to predict."""

    sweep: tuple[int, ...] | None
    """Numbers of systems; None leaves the choice to ``--num_csx``."""
    token_budget: float | None
    prices: PriceSpec
