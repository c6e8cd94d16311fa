"""Search the batch, the systems and the micro-batch with which a training is fastest or cheapest.

Few candidates are all tried. Of more, those on powers of two of systems are tried with every size
with which the weights stream seldom, then all around the best of them; the result says so.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from appliance.spec import ClusterSpec
from waferstream.config.phases import load_params
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.core.program.micro_batches import (
    MicroBatchPolicy,
    SizeRange,
    explored_sizes,
    rounds_of,
)
from waferstream.scaling.sweep import SimulationRequest
from waferstream.simulation.capturing import capturing
from waferstream.simulation.session import billed, check_request
from waferstream.simulation.study import Study
from waferstream.studies.candidates import Candidate, Goal, SearchResult, Space
from waferstream.studies.grid import Scalar
from waferstream.studies.keys import with_machine

MOST_TRIED = 4_000
"""Candidates that are all tried; of more, a part."""
_FEW_STREAMS = 6
"""Streams of the weights in a step up to which every micro-batch of a first pass is tried."""


def search(
    params_file: Path,
    cluster: Mapping[str, Any],
    space: Space,
    goal: Goal,
    request: SimulationRequest,
    start_s: float | None = None,
) -> SearchResult:
    """Return the candidates of a space, the best first.

    Args:
        params_file: The params file, whose batch and micro-batch do not count.
        cluster: The data of cluster.yaml.
        space: The choices.
        goal: What is to be least, and the limits.
        request: The token budget, and prices.
        start_s: When the command began, by ``time.perf_counter``; now by default.

    Raises:
        ConfigError: The model reads no tokens, or no candidate is possible within the limits.
    """
    began_s = time.perf_counter() if start_s is None else start_s
    params = load_params(params_file)
    with capturing(params, validate(ClusterSpec, cluster, "cluster.yaml")) as capture:
        check_request(params, request, 1, capture.facts)
        hunt = _Hunt(goal, request)
        for values in space.machines.points():
            spec = validate(ClusterSpec, with_machine(cluster, values), "--over")
            machine = request.prices.stated_for(spec.machine)
            priced = spec.model_copy(update={"machine": machine})
            counts = [n for n in space.counts if machine.systems is None or n <= machine.systems]
            study = capture.study(params, priced, None, request)
            named = {key.name: value for key, value in values.items()}
            hunt.add(study, named, space.batches, counts)
        hunt.run()
    return hunt.result(began_s)


@dataclass(frozen=True)
class _Place:
    """One machine, batch and number of systems, with the micro-batches that there may be."""

    study: Study
    values: Mapping[str, Scalar]
    num_csx: int
    sizes: tuple[int, ...]

    def few_streams(self) -> tuple[int, ...]:
        """Return the sizes with which weights stream seldom."""
        largest, batch = self.study.simulator.largest_micro_batch, self.study.batch_size
        streams = {
            size: rounds_of(batch, self.num_csx, size) for size in self.sizes if size <= largest
        }
        fewest = min(streams.values(), default=1)
        return tuple(size for size, count in streams.items() if count < fewest + _FEW_STREAMS)


@dataclass
class _Hunt:
    """A search while it runs."""

    goal: Goal
    request: SimulationRequest
    _places: list[_Place] = field(default_factory=list)
    _found: list[Candidate] = field(default_factory=list)
    _tried: set[tuple[int, int]] = field(default_factory=set)
    _refused: Counter[str] = field(default_factory=Counter)
    _exceeded: Counter[str] = field(default_factory=Counter)

    def add(
        self,
        study: Study,
        values: Mapping[str, Scalar],
        batches: Iterable[int],
        counts: Sequence[int],
    ) -> None:
        """Add the places of one machine."""
        for batch in batches:
            of_batch = replace(study, batch_size=batch)
            for count in counts:
                sizes = _sizes(of_batch, count)
                self._places.append(_Place(of_batch, values, count, sizes))

    def run(self) -> None:
        """Try all candidates, or the more promising ones."""
        if self._possible <= MOST_TRIED:
            self._try((place, place.sizes) for place in self._places)
            return
        counts = sorted({place.num_csx for place in self._places})
        first = {n for n in counts if n.bit_count() == 1} | {counts[0], counts[-1]}
        self._try((p, p.few_streams()) for p in self._places if p.num_csx in first)
        if not self._found:
            return
        around = self._around(min(self._found, key=self._rank))
        self._try((place, place.few_streams()) for place in around)
        best = min(self._found, key=self._rank)
        self._try((place, place.sizes) for place in around if place.num_csx == best.point.num_csx)

    def _around(self, best: Candidate) -> list[_Place]:
        """Return the places with the machine and batch of a candidate, on up to twice its systems,
        and down to half.
        """
        count = best.point.num_csx
        return [
            place
            for place in self._places
            if count <= 2 * place.num_csx <= 4 * count
            and place.study.batch_size == best.batch_size
            and place.values == best.values
        ]

    @property
    def _possible(self) -> int:
        return sum(max(1, len(place.sizes)) for place in self._places)

    def _try(self, choices: Iterable[tuple[_Place, Sequence[int]]]) -> None:
        for place, sizes in choices:
            for size in sizes or (0,):
                key = (id(place), size)
                if key not in self._tried:
                    self._tried.add(key)
                    self._try_one(place, size)

    def _try_one(self, place: _Place, size: int) -> None:
        study = replace(place.study, policy=MicroBatchPolicy(size or "auto"))
        try:
            (bare,) = study.curve((place.num_csx,))
            point = billed(study, bare, self.request)
        except WaferStreamError as error:
            self._refused[error.code] += 1
            return
        machine = study.simulator.machine.system.name
        candidate = Candidate(machine, place.values, study.batch_size, point)
        limits = self.goal.exceeded(candidate.bill)
        self._exceeded.update(limits)
        if not limits:
            self._found.append(candidate)

    def _rank(self, candidate: Candidate) -> tuple[float, int, int]:
        """Return the value of a candidate; of equal ones, fewer systems and samples are better."""
        return self.goal.value(candidate.bill), candidate.point.num_csx, candidate.batch_size

    def result(self, began_s: float) -> SearchResult:
        """Return what was found.

        Raises:
            ConfigError: Nothing was.
        """
        if not self._found:
            raise self._nothing()
        return SearchResult(
            goal=self.goal,
            candidates=tuple(sorted(self._found, key=self._rank)),
            tried=len(self._tried),
            possible=self._possible,
            refused=dict(self._refused),
            exceeded=dict(self._exceeded),
            total_s=time.perf_counter() - began_s,
        )

    def _nothing(self) -> ConfigError:
        refused = ", ".join(f"{count:,} {code}" for code, count in self._refused.items())
        beyond = ", ".join(f"{count:,} beyond {name}" for name, count in self._exceeded.items())
        return ConfigError(
            "no candidate is possible within the limits",
            code="search-without-result",
            where="the limits of the search",
            value=f"{len(self._tried):,} tried: {', '.join(filter(None, (refused, beyond)))}",
            remedy="raise the limit that most are beyond, or allow more systems and other batches",
        )


def _sizes(study: Study, num_csx: int) -> tuple[int, ...]:
    """Return the micro-batches of a system's share; none where it cannot be shared."""
    try:
        return tuple(explored_sizes(study.batch_size, SizeRange(), num_csx, study.group_of_samples))
    except ConfigError:
        return ()
