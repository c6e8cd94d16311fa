"""Load on a service: throughput, latency, energy and cost, beside GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from waferstream.baselines.gpu.clusters import DGX_H100
from waferstream.baselines.gpu.inference import decode_s_per_token, prefill_s
from waferstream.baselines.gpu.power import gpu_hour
from waferstream.core.units import PS_PER_S, aligned, counted, format_rate, seconds
from waferstream.machine.energy import SECONDS_PER_HOUR, Footprint, hour_of
from waferstream.machine.hardware import PowerSpec
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.service import Service
from waferstream.machine.regions.weight_streaming import crossover
from waferstream.simulator.service_load import Answered, Asked, Load, simulate
from waferstream.simulator.service_requests import Lengths, of_users

USERS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
"""Users of the points of a curve."""

POWER = PowerSpec()
"""Power and prices of a service."""

_FEWEST_REQUESTS = 32  # of a point, so that it has percentiles
_MILLION = 1e6
_FOOTPRINT_HEAD = ("kWh/Mtok", "kg CO2e/Mtok", "USD/Mtok")


@dataclass(frozen=True)
class LoadPoint:
    """What a service does under one load; rates and times are of answers that followed another."""

    load: str
    requests: int
    tokens_per_s: float
    """Of all users together: output tokens."""
    speed_p50: float
    """Output tokens/s of a user after the first token."""
    speed_p5: float
    """Of the slowest 5 %."""
    first_token_p50_s: float
    first_token_p95_s: float
    first_token_p99_s: float
    utilization: float
    """Share of the time for which the busiest stage has work."""
    per_million_tokens: Footprint


@dataclass(frozen=True)
class GpuPoint:
    """A node of GPUs with users who are one batch."""

    users: int
    tokens_per_s: float
    speed: float
    per_million_tokens: Footprint


@dataclass(frozen=True)
class LoadReport:
    """A service under loads."""

    name: str
    service: Service
    lengths: Lengths
    points: tuple[LoadPoint, ...]

    @property
    def gpus(self) -> int:
        """GPUs that hold the weights: a node, or a power of two of nodes."""
        decoder, gpu = self.service.layout.decoder, DGX_H100.gpu
        held = decoder.weight_bytes + 2 * decoder.head_bytes
        node = DGX_H100.gpus_per_node * gpu.hbm_bytes * gpu.usable_share
        return DGX_H100.gpus_per_node << int(held / node).bit_length()

    @property
    def crossover(self) -> int | None:
        """The smallest batch that weight streaming answers faster."""
        return crossover(self.service, self.lengths.prompt + self.lengths.output)

    def gpu_points(self) -> list[GpuPoint]:
        """Return the same load on GPUs, as far as their memory reaches."""
        decoder = self.service.layout.decoder
        return [
            _gpu_point(decoder, users, self.lengths, self.gpus)
            for users in USERS
            if users <= self._most_gpu_users
        ]

    @property
    def _most_gpu_users(self) -> int:
        decoder, gpu = self.service.layout.decoder, DGX_H100.gpu
        room = self.gpus * gpu.hbm_bytes * gpu.usable_share
        held = decoder.weight_bytes + 2 * decoder.head_bytes
        each = decoder.cache_bytes(self.lengths.prompt + self.lengths.output)
        return int((room - held) // each)

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {
            "model": self.name,
            "system": self.service.spec.system.name,
            "wafers": self.service.layout.num_wafers,
            "cache_tokens": self.service.layout.cache_tokens,
            **self.lengths.model_dump(),
            "points": [asdict(point) for point in self.points],
            "gpus": self.gpus,
            "gpu_points": [asdict(point) for point in self.gpu_points()],
            "streaming_is_faster_from": self.crossover,
            "power": POWER.model_dump(exclude_none=True),
        }

    def text(self) -> str:
        """Return the report as text."""
        layout, spec = self.service.layout, self.service.spec
        power = POWER.of_system(spec.system.name)
        head = (
            "load", "tokens/s", "a user's", "slowest 5 %", "first token", "p95", "p99", "busy",
            *_FOOTPRINT_HEAD,
        )  # fmt: skip
        gpu_head = (f"{self.gpus} H100: users", "tokens/s", "a user's", *_FOOTPRINT_HEAD)
        gpu_rows = [
            (
                str(one.users),
                format_rate(one.tokens_per_s),
                format_rate(one.speed),
                *_footprint_cells(one.per_million_tokens),
            )
            for one in self.gpu_points()
        ]
        faster = self.crossover
        streams = (
            "never be faster" if faster is None else f"be faster from a batch of {faster:,} on"
        )
        return "\n".join(
            [
                f"{self.name} on {layout.num_wafers} {spec.system.name}: prompts of some "
                f"{self.lengths.prompt:,} tokens, answers of {self.lengths.output:,}; "
                f"cache of {layout.cache_tokens:,}",
                "",
                *aligned([head, *map(_cells, self.points)]),
                "",
                *aligned([gpu_head, *gpu_rows], left=()),
                "",
                f"Streaming the weights to as many wafers would {streams}.",
                f"Energy: a system draws {power.idle_kw:g} kW idle and {power.load_kw:g} busy, its "
                f"hosts and cooling counted; money: {POWER.system_hour_usd:g} USD a system-hour, "
                "an estimate, and energy. GPUs: a model of tensor parallelism without a draft.",
            ]
        )


def curve(name: str, service: Service, lengths: Lengths, seed: int) -> LoadReport:
    """Return a service under more and more users."""
    points = tuple(of_closed_loop(service, users, lengths, seed) for users in USERS)
    return LoadReport(name, service, lengths, points)


def of_closed_loop(service: Service, users: int, lengths: Lengths, seed: int) -> LoadPoint:
    """Return the load of users, of whom each asks again when it has its answer."""
    each = max(2, -(-_FEWEST_REQUESTS // users))
    alone = service.pipeline.prompt(lengths.prompt) + service.tokens(lengths.prompt, lengths.output)
    requests = of_users(users, each, alone.total_ps, lengths, seed)
    firsts = {id(one) for one in requests}  # these come while the service fills
    return of_requests(
        service, counted(users, "user"), requests, lambda answered: id(answered.asked) not in firsts
    )


def of_requests(
    service: Service,
    load: str,
    requests: Sequence[Asked],
    counts: Callable[[Answered], bool] = lambda _: True,
) -> LoadPoint:
    """Return the load of requests; ``counts`` says whose times are told."""
    found = simulate(service, requests)
    counted = [one for one in found.answered if counts(one)]
    firsts = sorted(seconds(one.first_ps - one.arrival_ps) for one in counted)
    speeds = sorted(map(_speed, counted))
    tokens = sum(one.asked.output for one in found.answered)
    rate = tokens / seconds(found.duration_ps)
    busy = found.busy_ps / found.duration_ps
    return LoadPoint(
        load=load,
        requests=len(found.answered),
        tokens_per_s=rate,
        speed_p50=_percentile(speeds, 50),
        speed_p5=_percentile(speeds, 5),
        first_token_p50_s=_percentile(firsts, 50),
        first_token_p95_s=_percentile(firsts, 95),
        first_token_p99_s=_percentile(firsts, 99),
        utilization=busy,
        per_million_tokens=_footprint(service, found, busy).times(_MILLION / tokens),
    )


def _footprint(service: Service, found: Load, busy: float) -> Footprint:
    """Return what a load takes on systems that hold all weights: there is no MemoryX."""
    wafers = service.layout.num_wafers
    system_kw = POWER.of_system(service.spec.system.name).mean_kw(busy)
    each_kw = system_kw + POWER.hosts_per_system * POWER.host_kw
    hour = hour_of(POWER, POWER.pue * wafers * each_kw, wafers * POWER.system_hour_usd)
    return hour.times(seconds(found.duration_ps) / SECONDS_PER_HOUR)


def _gpu_point(decoder: Decoder, users: int, lengths: Lengths, gpus: int) -> GpuPoint:
    """Return a batch of users on GPUs, who wait for the prompts of one another."""
    context = lengths.prompt + lengths.output // 2
    prompt_s = prefill_s(decoder, lengths.prompt, gpus, DGX_H100)
    step_s = decode_s_per_token(decoder, context, gpus, DGX_H100, users)
    token_s = step_s + (users - 1) * prompt_s / lengths.output
    throughput = users * lengths.output / (prompt_s + lengths.output * token_s)
    hours = _MILLION / throughput / SECONDS_PER_HOUR
    return GpuPoint(users, throughput, 1 / token_s, gpu_hour(DGX_H100, gpus, POWER).times(hours))


def _speed(answered: Answered) -> float:
    """Return the tokens/s of an answer after its first token; one of one token has that of all."""
    tokens = answered.asked.output - 1
    if not tokens:
        return PS_PER_S / (answered.end_ps - answered.arrival_ps)
    return tokens * PS_PER_S / max(1, answered.end_ps - answered.first_ps)


def _percentile(ordered: Sequence[float], percent: int) -> float:
    """Return the value below which ``percent`` of all lie, of ordered values."""
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def _cells(point: LoadPoint) -> tuple[str, ...]:
    times = (point.first_token_p50_s, point.first_token_p95_s, point.first_token_p99_s)
    return (
        point.load,
        format_rate(point.tokens_per_s),
        format_rate(point.speed_p50),
        format_rate(point.speed_p5),
        *(f"{time:.3g} s" for time in times),
        f"{point.utilization:.0%}",
        *_footprint_cells(point.per_million_tokens),
    )


def _footprint_cells(million: Footprint) -> tuple[str, ...]:
    return tuple(f"{amount:.3g}" for amount in vars(million).values())
