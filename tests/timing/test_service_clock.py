"""Every number of a service counts, and a request of the clock is what its tokens take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.core.units import PS_PER_S
from waferstream.machine.regions.published import DECODERS, DRAFTS
from waferstream.machine.regions.service import SERVICE, Service, ServiceSpec
from waferstream.serving.clock import ServiceClock

NAME = "llama-3.1-70b"


def _token_s(spec: ServiceSpec) -> float:
    return Service(DECODERS[NAME], 1024, spec, DRAFTS[NAME]).token_s(1024)


def _side(spec: ServiceSpec) -> float:
    return Service(DECODERS[NAME], 1024, spec).layout.region.side


def _fits(spec: ServiceSpec) -> float:
    try:
        return Service(DECODERS[NAME], 1024, spec).layout.num_wafers
    except ApplianceResourceExhausted:
        return 0


@pytest.mark.parametrize(
    ("field", "value", "quantity", "sign"),
    [
        ("kernel_factor", 2.0, _token_s, 1),
        ("acceptance", 0.5, _token_s, 1),
        ("wafer_hop_ps", 10**9, _token_s, 1),
        ("side_step", 60, _side, -1),
        ("most_wafers", 3, _fits, -1),
    ],
)
def test_every_number_of_a_service_counts(
    field: str, value: Any, quantity: Callable[[ServiceSpec], float], sign: int
) -> None:
    """A change of one moves a quantity in the direction that its meaning says."""
    changed = SERVICE.model_copy(update={field: value})
    assert sign * (quantity(changed) - quantity(SERVICE)) > 0


def test_attribution_of_a_request_adds_up() -> None:
    """To the picosecond; a token is the last of the prompt's time, the others follow."""
    clock = ServiceClock(DECODERS["llama-3.1-8b"], 4096)
    found = clock.of(500, 20)
    picoseconds = sum(sum(part.values()) for part in found.attribution.values())
    assert found.total_s == picoseconds / PS_PER_S
    assert clock.of(500, 1).completion.total_ps == 0
    assert clock.of(500, 21).prompt == found.prompt
    assert clock.of(500, 21).completion_s > found.completion_s
