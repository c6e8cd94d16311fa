"""The vendor's service of a model: its layout on wafers, its clock, and its draft.

This is the weakest part of the model. The kernels of the service are not published; they are
assumed to be those of WaferLLM times one factor for each generation of its software. A draft
guesses tokens, each right with the same probability whatever came before (Leviathan et al., 2023),
and the model checks all of them in one pass.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from waferstream.core.config import Config
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError
from waferstream.core.units import PS_PER_US
from waferstream.machine.hardware import CS3, WaferSpec
from waferstream.machine.hardware.sourced import Preset, Sourced, preset, sourced
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.layout import Layout, layouts
from waferstream.machine.regions.pipeline import Pipeline
from waferstream.machine.regions.published import Draft
from waferstream.machine.regions.token_time import TokenTime

SERVED_CONTEXT = 1024
"""Tokens in the context of a served token where nothing else is known; assumed."""

MOST_WAFERS = 2048
"""The most wafers of a cluster; vendor."""

_PARTS = 10**6  # of a token, in which the tokens of a round are counted


class ServiceSpec(Config):
    """A pipeline of wafers with the kernels of one generation of the service."""

    system: WaferSpec = Field(default_factory=lambda: CS3)
    kernel_factor: PositiveFloat
    """Time of the service's kernels over that of the programs for regions."""
    acceptance: PositiveFloat = sourced(
        0.952,
        "assumed",
        "share of a draft's tokens that the model would have chosen, as I0005 needs",
        le=0.999,
    )
    wafer_hop_ps: NonNegativeInt = sourced(
        5 * PS_PER_US, "published", "T0221 I0028: under 5 us to the next wafer, taken as 5"
    )
    side_step: PositiveInt = sourced(
        10, "assumed", "sides of regions are its multiples; 60 in the evaluation of He et al."
    )
    most_wafers: PositiveInt = sourced(64, "assumed", "a pipeline longer than any that is served")


_FIRST: Preset[ServiceSpec] = preset(
    ServiceSpec,
    "The vendor's service of August 2024",
    kernel_factor=Sourced(1.205, "assumed", "as T0214 and I0001 need: LLaMA3.1-8B without a draft"),
)
_SINCE: Preset[ServiceSpec] = preset(
    ServiceSpec,
    "The vendor's service since its kernels were rewritten in October 2024",
    kernel_factor=Sourced(0.984, "assumed", "as I0011 needs: LLaMA3.1-8B, taken to have no draft"),
)
PRESETS: Mapping[str, Preset[ServiceSpec]] = {"FIRST_SERVICE": _FIRST, "SERVICE": _SINCE}

FIRST_SERVICE = _FIRST.spec
SERVICE = _SINCE.spec


class Service:
    """A model on its wafers.

    Args:
        model: Its shape.
        context: The tokens whose keys and values must fit.
        spec: Wafers and kernels.
        draft: What guesses its tokens; None for nothing.
        most_wafers: The most wafers, of which all may serve; None for as few as are worth it.
        side: Of the regions; None for the best one.

    Raises:
        ApplianceResourceExhausted: It does not fit.
    """

    def __init__(
        self,
        model: Decoder,
        context: int,
        spec: ServiceSpec = SERVICE,
        draft: Draft | None = None,
        most_wafers: int | None = None,
        side: int | None = None,
    ) -> None:
        self.spec, self.draft = spec, draft
        self.pipeline = _fastest(model, context, spec, most_wafers, side)
        self.layout: Layout = self.pipeline.layout
        self._draft = None if draft is None else _fastest(draft.shape, SERVED_CONTEXT, spec)
        self.guesses = lru_cache(self._guesses)

    def token_s(self, context: int) -> float:
        """Return the mean seconds of a token of one user."""
        return self.round(context).total_ps / self.tokens_of_round(context) / 1e12

    def tokens(self, prompt: int, count: int) -> TokenTime:
        """Return the time of ``count`` tokens that follow a prompt: with a draft, as expected."""
        if self.draft is None or not count:
            return self.pipeline.tokens(prompt, count)
        context = prompt + (count + 1) // 2
        per_round = round(_PARTS * self.tokens_of_round(context))
        return self.round(context).scaled(count * _PARTS, per_round)

    def round(self, context: int, guesses: int | None = None) -> TokenTime:
        """Return the time of the tokens of one pass, with those that the draft guesses for it.

        Args:
            context: Tokens that it attends to.
            guesses: How many; None for as many as give one user most tokens/s.
        """
        guesses = self.guesses(context) if guesses is None else guesses
        checked = self.pipeline.token(context)
        if self._draft is None or not guesses:
            return checked
        guessed = self._draft.token(context).scaled(guesses)
        following = TokenTime(waiting_ps=guesses * self.pipeline.interval_ps(context))
        return guessed + checked + following

    def tokens_of_round(self, context: int, guesses: int | None = None) -> float:
        """Return the tokens of a pass, as expected: the right ones of the draft, and one more."""
        rate = self.spec.acceptance
        guesses = self.guesses(context) if guesses is None else guesses
        return float((1 - rate ** (guesses + 1)) / (1 - rate))

    def _guesses(self, context: int) -> int:
        """Return how many tokens a draft guesses before a pass, which gives most tokens/s."""
        if self._draft is None or self.draft is None:
            return 0
        rate = self.spec.acceptance
        checked = self.pipeline.token(context).total_ps
        each = self._draft.token(context).total_ps + self.pipeline.interval_ps(context)
        return min(
            range(self.draft.most_tokens + 1),
            key=lambda n: (checked + n * each) / (1 - rate ** (n + 1)),
        )


def pipelines(model: Decoder, context: int, spec: ServiceSpec, most_wafers: int) -> list[Pipeline]:
    """Return the pipelines on regions of every side that fits.

    Raises:
        ApplianceResourceExhausted: None fits.
    """
    found = layouts(model, context, spec.system, spec.side_step, most_wafers)
    all_sides = [Pipeline(each, spec.kernel_factor, spec.wafer_hop_ps) for each in found]
    if all_sides:
        return all_sides
    needed = model.weight_bytes + 2 * model.head_bytes + model.cache_bytes(context)
    raise ApplianceResourceExhausted(
        "the decoder must fit the wafers of the service",
        code="decoder-exceeds-service",
        where="weights and KV cache",
        value=f"{needed / 1e9:.1f} GB for a context of {context:,}",
        rule=f"at most {most_wafers} wafers of {spec.system.sram_bytes / 1e9:.0f} GB",
        remedy=_remedy(model, context, spec, most_wafers),
    )


def _fastest(
    model: Decoder,
    context: int,
    spec: ServiceSpec,
    most_wafers: int | None = None,
    side: int | None = None,
) -> Pipeline:
    """Return the pipeline with most tokens per second: of each wafer, or of those given.

    Fewest wafers alone would choose regions that pack well and decode slowly.
    """
    typical = min(context, SERVED_CONTEXT)

    def cost(each: Pipeline) -> int:
        wafers = 1 if most_wafers else each.layout.num_wafers
        return wafers * each.token(typical).total_ps

    found = pipelines(model, context, spec, most_wafers or spec.most_wafers)
    if side is not None:
        sides = [each.layout.region.side for each in found]
        found = [each for each in found if each.layout.region.side == side]
        if not found:
            raise ConfigError(
                "the side must be that of regions on which the model fits",
                code="side-does-not-fit",
                value=side,
                rule=", ".join(map(str, sides)),
            )
    return min(found, key=cost)


def _remedy(model: Decoder, context: int, spec: ServiceSpec, most_wafers: int) -> str:
    """Return what would fit: more wafers for this context, or a shorter context on these."""

    def wafers_for(tokens: int, most: int) -> int | None:
        found = layouts(model, tokens, spec.system, spec.side_step, most)
        return min((each.num_wafers for each in found), default=None)

    enough = wafers_for(context, MOST_WAFERS)
    shorter = bisect_left(
        range(context), 1, key=lambda tokens: wafers_for(tokens, most_wafers) is None
    )
    offers = [f"allow {enough} wafers"] if enough else []
    if shorter > 1:
        offers.append(f"a context of at most {shorter - 1:,}")
    return " or ".join(offers) or f"no {MOST_WAFERS:,} wafers hold a layer and a token of it"
