"""The plan of a service: where a model lies on wafers, how fast it is, and what else would fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from operator import ge
from typing import Any, NamedTuple

from waferstream.core.units import aligned, counted, format_ps, format_rate, seconds
from waferstream.machine.intervals import SHARES, AnyInterval, Setting, Unknown, interval_of
from waferstream.machine.regions.layout import Place, Stage
from waferstream.machine.regions.pipeline import Pipeline
from waferstream.machine.regions.service import Service, pipelines
from waferstream.reports.intervals import range_text

PROMPT = 1000
"""The most tokens of the prompt whose time a plan tells."""

_MOST_OTHERS = 8


class Choice(NamedTuple):
    """A side of regions, with what it gives."""

    side: int
    wafers: int
    layers: int
    """Layers of the fullest stage."""
    tokens_per_s: float
    """Of one user, without a draft."""
    users: int
    """Whose tokens are under way at a time."""
    cache_tokens: int

    @classmethod
    def of(cls, pipeline: Pipeline, context: int) -> Choice:
        """Return what a pipeline gives at a context."""
        layout = pipeline.layout
        return cls(
            layout.region.side,
            layout.num_wafers,
            layout.busiest_layers,
            1 / seconds(pipeline.token(context).total_ps),
            pipeline.full_speed_users(context),
            layout.cache_tokens,
        )

    def beats(self, other: Choice) -> bool:
        """Return whether it is as good in wafers, speed and users, and better in one of them."""
        mine = -self.wafers, self.tokens_per_s, self.users
        theirs = -other.wafers, other.tokens_per_s, other.users
        return mine != theirs and all(map(ge, mine, theirs))


@dataclass(frozen=True)
class ServicePlan:
    """A model on its wafers.

    Attributes:
        name: The model.
        service: Where it lies, and its clock.
        context: Tokens that a token attends to in the figures, and for which a sequence has room.
        most_wafers: The most wafers that the choices take.
    """

    name: str
    service: Service
    context: int
    most_wafers: int

    @property
    def prompt(self) -> int:
        """Tokens of the prompt whose time is told."""
        return min(PROMPT, self.context)

    @property
    def chosen(self) -> Choice:
        """The side of the plan."""
        return Choice.of(self.service.pipeline, self.context)

    @property
    def others(self) -> list[Choice]:
        """Other sides, none of which another one beats, with few wafers first."""
        found = pipelines(
            self.service.layout.decoder, self.context, self.service.spec, self.most_wafers
        )
        choices = [Choice.of(each, self.context) for each in found]
        best = [one for one in choices if not any(other.beats(one) for other in choices)]
        return sorted(best, key=lambda one: (one.wafers, -one.tokens_per_s))[:_MOST_OTHERS]

    @property
    def interval(self) -> AnyInterval:
        """The interval of the speed of a user."""
        sizes = {"parameters": self.service.layout.decoder.active_weights}
        return interval_of(Setting("inference service", self.service.spec.system.name, sizes))

    def as_json(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        layout, service, chosen = self.service.layout, self.service, self.chosen
        return {
            "model": self.name,
            "system": service.spec.system.name,
            **chosen._asdict(),
            "interval": asdict(self.interval),
            "weight_bytes": layout.decoder.weight_bytes,
            "embedding_and_head_bytes": 2 * layout.decoder.head_bytes,
            "sram_bytes": layout.sram_bytes,
            "context": self.context,
            "tokens_per_s_with_draft": 1 / service.token_s(self.context),
            "guesses": service.guesses(self.context),
            "token_ps": service.pipeline.token(self.context).by_cause,
            "prompt_tokens": self.prompt,
            "prompt_ps": service.pipeline.prompt(self.prompt).by_cause,
            "stages": [stage.as_json() for stage in layout.stages],
            "others": [one._asdict() for one in self.others],
        }

    def text(self) -> str:
        """Return the plan as text, with a map of each wafer."""
        return "\n".join(
            [
                f"{self.name} on {self.service.spec.system.name}",
                "",
                *aligned(self._facts(), left=(0, 1)),
                "",
                *self._maps(),
                *self._choices(),
            ]
        )

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield what is known, by its name."""
        layout, service, chosen = self.service.layout, self.service, self.chosen
        decoder, region = layout.decoder, layout.region
        used = sum(len(stage.places) for stage in layout.stages)
        yield (
            "wafers",
            f"{layout.num_wafers}, each with {counted(len(region.snake), 'region')} of "
            f"{region.side} x {region.side} PEs; {used} are in use",
        )
        yield (
            "layers",
            f"{decoder.layers} in {counted(len(layout.layer_stages), 'stage')} of at most "
            f"{counted(layout.busiest_layers, 'layer')}; a stage has "
            f"{counted(layout.regions_per_layer, 'region')}",
        )
        if decoder.experts > 1:
            yield (
                "experts",
                f"{decoder.experts} a layer, of which a token passes "
                f"{decoder.experts_per_token + decoder.shared_experts}",
            )
        yield (
            "memory",
            f"{decoder.weight_bytes / 1e9:.1f} GB of layers, {2 * decoder.head_bytes / 1e9:.1f} GB "
            f"of embedding and head, in {layout.sram_bytes / 1e9:.1f} GB",
        )
        yield (
            "cache",
            f"{layout.cache_tokens:,} tokens: "
            f"{counted(layout.cache_tokens // self.context, 'sequence')} of {self.context:,}",
        )
        token = service.pipeline.token(self.context)
        yield (
            "token",
            f"{format_ps(token.total_ps)} at a context of {self.context:,}: "
            + _shares(token.by_cause),
        )
        yield "speed of a user", f"{format_rate(chosen.tokens_per_s)} tokens/s" + self._drafted()
        yield "intervals", self._intervals(1 / service.token_s(self.context))
        yield (
            "users at full speed",
            f"{chosen.users}, {format_rate(chosen.users * chosen.tokens_per_s)} tokens/s together",
        )
        prompt = service.pipeline.prompt(self.prompt)
        yield f"prompt of {self.prompt:,}", f"{format_ps(prompt.total_ps)} to the first token"

    def _drafted(self) -> str:
        """Return the speed with a draft."""
        guesses = self.service.guesses(self.context)
        if not guesses:
            return ""
        rate = format_rate(1 / self.service.token_s(self.context))
        return f"; {rate} expected with a draft (guesses a pass: {guesses})"

    def _intervals(self, rate: float) -> str:
        """Return the ranges around the speed of a user, with its draft if it has one."""
        interval = self.interval
        if isinstance(interval, Unknown):
            return str(interval)
        ranges = {name: interval.around(rate, share) for share, name in SHARES.items()}
        named = (f"{name}: {range_text(limits)} tokens/s" for name, limits in ranges.items())
        return "; ".join(named)

    def _maps(self) -> Iterator[str]:
        """Yield the regions of each wafer, with the layers that lie in them."""
        names = {
            place: name_of(stage) for stage in self.service.layout.stages for place in stage.places
        }
        corners = self.service.layout.region.snake
        columns = sorted({column for column, _ in corners})
        rows = sorted({row for _, row in corners})
        width = max(map(len, names.values()))
        for wafer in range(self.service.layout.num_wafers):
            yield f"wafer {wafer + 1}"
            used = [place.row for place in names if place.wafer == wafer]
            for row in (row for row in rows if row <= max(used)):  # the others are free
                cells = (names.get(Place(wafer, column, row), ".") for column in columns)
                yield "  " + "  ".join(cell.rjust(width) for cell in cells)
            yield ""

    def _choices(self) -> Iterator[str]:
        """Yield a table of sides, of which the plan has one."""
        head = ("side", "wafers", "layers a stage", "tokens/s", "users", "cache tokens")
        rows = [
            (
                str(one.side), str(one.wafers), str(one.layers), format_rate(one.tokens_per_s),
                str(one.users), f"{one.cache_tokens:,}",
            )
            for one in dict.fromkeys([self.chosen, *self.others])
        ]  # fmt: skip
        yield "sides that no other beats in wafers, speed and users; the first is the plan's"
        yield from aligned([head, *rows], left=())


def name_of(stage: Stage) -> str:
    """Return the layers of a stage, or its part, for a map."""
    if stage.part != "layers":
        return stage.part
    last = stage.first_layer + stage.layers - 1
    return str(last) if stage.layers == 1 else f"{stage.first_layer}-{last}"


def _shares(by_cause: dict[str, int]) -> str:
    """Return the shares of causes that are not zero."""
    total = sum(by_cause.values())
    return ", ".join(f"{cause} {ps / total:.1%}" for cause, ps in by_cause.items() if ps)
