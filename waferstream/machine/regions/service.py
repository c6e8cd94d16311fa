"""Decoding of a model that is served from several wafers, with whole layers on each.

This is the weakest part of the model. The kernels of the vendor's service are not published; they
are assumed to be those of WaferLLM times one factor, fitted on one row. Speculative decoding, on
which later figures of the service rely, is not modelled.
"""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from waferstream.core.arguments import check_least
from waferstream.core.config import Config
from waferstream.core.errors import ApplianceResourceExhausted
from waferstream.machine.hardware import CS3, WaferSpec
from waferstream.machine.hardware.sourced import sourced
from waferstream.machine.regions.phases import decode_s_per_token
from waferstream.machine.regions.region import PE_COSTS, Decoder, PeCosts, Region


class ServiceSpec(Config):
    """A pipeline of CS-3 wafers."""

    system: WaferSpec = Field(default_factory=lambda: CS3)
    kernel_factor: PositiveFloat = sourced(
        1.23,
        "fitted",
        "T0214; time of a layer in the service over that of the programs for regions",
    )
    wafer_hop_s: NonNegativeFloat = sourced(
        5e-6, "published", "T0221: under 5 us from one wafer to the next, taken as 5"
    )
    side_step: PositiveInt = sourced(
        60, "published", "sides of regions are multiples of 60 in the evaluation of He et al."
    )
    most_wafers: PositiveInt = sourced(64, "assumed", "a pipeline longer than any that is served")


def service_s_per_token(
    model: Decoder, context: int, service: ServiceSpec, costs: PeCosts = PE_COSTS
) -> float:
    """Return the seconds per token and user: all layers in sequence plus the hops between wafers.

    Raises:
        ConfigError: ``context`` is not positive.
        ApplianceResourceExhausted: The weights do not fit.
    """
    check_least("a request", context=context)
    num_wafers, region = wafer_plan(model, context, service, costs)
    layers_s = decode_s_per_token(model, region, context, costs)
    return service.kernel_factor * layers_s + (num_wafers - 1) * service.wafer_hop_s


def wafer_plan(
    model: Decoder, context: int, service: ServiceSpec, costs: PeCosts = PE_COSTS
) -> tuple[int, Region]:
    """Return the number of wafers and the region with most tokens per second and wafer.

    Minimizing the wafers alone would choose regions that pack well and decode slowly.

    Raises:
        ApplianceResourceExhausted: More than ``most_wafers`` would be needed.
    """
    needed_bytes = model.weight_bytes + model.cache_bytes(context)
    plans = [(-(-needed_bytes // held_bytes(region)), region) for region in _regions(service)]
    fitting = [plan for plan in plans if plan[0] <= service.most_wafers]
    if fitting:
        return min(fitting, key=lambda p: p[0] * decode_s_per_token(model, p[1], context, costs))
    raise ApplianceResourceExhausted(
        "the decoder must fit the wafers of the service",
        code="decoder-exceeds-service",
        where="weights and KV cache",
        value=f"{needed_bytes / 1e9:.1f} GB",
        rule=f"at most {service.most_wafers} wafers",
        remedy="allow more wafers, or a shorter context",
    )


def _regions(service: ServiceSpec) -> list[Region]:
    """Return the candidate regions, from small to large."""
    system = service.system
    largest = min(system.fabric.columns, system.fabric.rows)
    sides = range(service.side_step, largest + 1, service.side_step)
    return [Region(side, system.fabric, system.clock_hz) for side in sides]


def held_bytes(region: Region) -> int:
    """Return the SRAM bytes of all whole regions of this side on one wafer."""
    fabric = region.fabric
    num_regions = (fabric.columns // region.side) * (fabric.rows // region.side)
    return num_regions * region.side**2 * fabric.sram_bytes_per_pe
