"""Run a study: each model is captured once, and each machine simulates it at all of its points.

A point that cannot be is a row with its reason: the batch is smaller than the systems, the model
fits no wafer, or the machine contradicts itself. A key or a type that no point could have is a
mistake of whoever asks, and ends the study.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from appliance.spec import ClusterSpec
from waferstream.config.overrides import Override
from waferstream.config.params import Params
from waferstream.config.phases import check_sections, load_params
from waferstream.core.config import load_yaml, validate
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.reports.curve.result import CurvePoint, RefusedPoint, efficiencies
from waferstream.reports.host import git_commit
from waferstream.scaling.sweep import PLAIN_REQUEST, SimulationRequest
from waferstream.simulation.capturing import Capture, capturing
from waferstream.simulation.session import billed, labels_of
from waferstream.simulation.study import Study
from waferstream.studies.grid import Grid, Scalar
from waferstream.studies.keys import Home, Key, with_machine
from waferstream.studies.result import StudyResult, StudyRow, StudyTimes, series_of
from waferstream.version import VERSION

_MISTAKES = frozenset(
    {
        "unknown-key",
        "unknown-class",
        "unknown-system",
        "wrong-type",
        "not-one-of",
        "missing-key",
        "file-not-readable",
    }
)
"""Codes of errors that end a study: no machine or model could be meant."""

Values = tuple[tuple[Key, Scalar], ...]


@dataclass(frozen=True)
class _Place:
    """A point of the grid: where its row goes, and what its keys say."""

    index: int
    values: Mapping[Key, Scalar]

    def of(self, home: Home) -> Values:
        """Return the values of the keys of one home."""
        return tuple((key, value) for key, value in self.values.items() if key.home == home)

    def stated(self, home: Home, other: Scalar) -> Scalar:
        """Return the value of the only key of a home, or another one."""
        return next((value for _, value in self.of(home)), other)


@dataclass
class StudyRun:
    """A study while it runs."""

    params_file: Path
    cluster: Mapping[str, Any]
    """The data of cluster.yaml."""
    request: SimulationRequest
    start_s: float
    """When it began, by the clock of ``time.perf_counter``."""
    _rows: dict[int, StudyRow] = field(default_factory=dict)
    _captured: int = 0
    _capture_s: float = 0.0
    _label: str = ""
    _parameters: int | None = None

    def run(self, grid: Grid) -> StudyResult:
        """Return the rows of a grid.

        Raises:
            ConfigError: A key does not exist, or a value has a type that it cannot have.
        """
        places = [_Place(index, values) for index, values in enumerate(grid.points())]
        for configurations in self._by_capture(places):
            self._run_capture(configurations)
        rows = _with_ideals([self._rows[place.index] for place in places])
        return StudyResult(
            model=self._label or self.params_file.stem,
            parameters=self._parameters,
            varying=tuple(axis.key.name for axis in grid.varying),
            rows=rows,
            times=StudyTimes(self._captured, self._capture_s, time.perf_counter() - self.start_s),
            version=VERSION,
            commit=git_commit(Path(__file__).parent),
            configuration={"params": load_yaml(self.params_file), "cluster": self.cluster},
        )

    def _by_capture(self, places: Sequence[_Place]) -> list[list[tuple[Params, list[_Place]]]]:
        """Return the configurations with their places, those together that one capture serves."""
        found: dict[str, list[tuple[Params, list[_Place]]]] = {}
        for values, of_params in _grouped(places, "params"):
            try:
                params = load_params(self.params_file, _overrides(values))
                check_sections(params)  # before captures
            except WaferStreamError as error:
                self._refuse(of_params, error)
                continue
            found.setdefault(_captured_part(params), []).append((params, of_params))
        return list(found.values())

    def _run_capture(self, configurations: Sequence[tuple[Params, list[_Place]]]) -> None:
        start_s = time.perf_counter()
        first, _ = configurations[0]
        try:
            with capturing(first, validate(ClusterSpec, self.cluster, "cluster.yaml")) as capture:
                capture.capture()
                self._captured += 1
                self._capture_s += time.perf_counter() - start_s
                for params, places in configurations:
                    for values, of_machine in _grouped(places, "machine"):
                        self._run_machine(capture, params, values, of_machine)
        except WaferStreamError as error:
            self._refuse([each for _, places in configurations for each in places], error)

    def _run_machine(
        self, capture: Capture, params: Params, values: Values, places: Sequence[_Place]
    ) -> None:
        where = ", ".join(f"{key.name} {value}" for key, value in values) or "cluster.yaml"
        try:
            cluster = validate(ClusterSpec, with_machine(self.cluster, dict(values)), where)
            machine = self.request.prices.stated_for(cluster.machine)
            cluster = cluster.model_copy(update={"machine": machine})
            for (_, scaling), of_scaling in _by_scaling(places, self.request):
                request = replace(self.request, weak=scaling == "weak")
                counts = [_count(place, params) for place in of_scaling]
                study = capture.study(params, cluster, counts, request)
                self._describe(params, study)
                for place, count in zip(of_scaling, counts, strict=True):
                    self._rows[place.index] = self._row(study, place, count, request)
        except WaferStreamError as error:
            self._refuse(places, error)

    def _describe(self, params: Params, study: Study) -> None:
        if self._parameters is None:
            program = study.simulator.program.small
            self._parameters = sum(spec.num_elements for spec in program.parameters)
            self._label = labels_of(params, study).model

    def _row(
        self, study: Study, place: _Place, num_csx: int, request: SimulationRequest
    ) -> StudyRow:
        machine = study.simulator.machine
        named = f" of {machine.name}" if machine.name else ""
        point: CurvePoint | RefusedPoint
        try:
            (bare,) = study.curve((num_csx,))
            point = billed(study, bare, request)
        except WaferStreamError as error:
            point = RefusedPoint(num_csx, error.what, error.code)
        return StudyRow(
            values={key.name: value for key, value in place.values.items()},
            machine=f"{machine.system.name}{named}",
            scaling="weak" if study.weak else "strong",
            num_csx=num_csx,
            batch_size=study.batch(num_csx),
            point=point,
        )

    def _refuse(self, places: Iterable[_Place], error: WaferStreamError) -> None:
        """Give places that have no row yet the reason; raise it where it is a mistake."""
        if error.code in _MISTAKES:
            raise error
        for place in places:
            count = place.stated("num_csx", 0)
            assert isinstance(count, int)
            row = StudyRow(
                values={key.name: value for key, value in place.values.items()},
                machine="",
                scaling=str(place.stated("scaling", "weak" if self.request.weak else "strong")),
                num_csx=count,
                batch_size=0,
                point=RefusedPoint(count, error.what, error.code),
            )
            self._rows.setdefault(place.index, row)


def run_study(
    params_file: Path,
    grid: Grid,
    cluster: Path | Mapping[str, Any] | None = None,
    request: SimulationRequest = PLAIN_REQUEST,
    start_s: float | None = None,
) -> StudyResult:
    """Simulate every point of a grid.

    Args:
        params_file: The params file that keys change.
        grid: The keys and their values.
        cluster: cluster.yaml or its data, whose machine keys change; as published by default.
        request: Token budget, prices, and what else holds for all points.
        start_s: When the command began, by ``time.perf_counter``; now by default.

    Raises:
        ConfigError: A key does not exist, or a value has a type that it cannot have.
    """
    data = load_yaml(cluster) if isinstance(cluster, Path) else dict(cluster or {})
    began_s = time.perf_counter() if start_s is None else start_s
    return StudyRun(params_file, data, request, began_s).run(grid)


def _grouped(places: Iterable[_Place], home: Home) -> Iterator[tuple[Values, list[_Place]]]:
    """Yield the places that agree in the values of the keys of one home."""
    found: dict[Values, list[_Place]] = {}
    for place in places:
        found.setdefault(place.of(home), []).append(place)
    yield from found.items()


def _by_scaling(
    places: Iterable[_Place], request: SimulationRequest
) -> Iterator[tuple[tuple[str, Scalar], list[_Place]]]:
    """Yield the places of strong and of weak scaling; those that do not say follow the request."""
    other = "weak" if request.weak else "strong"
    for _, of_scaling in _grouped(places, "scaling"):
        yield ("scaling", of_scaling[0].stated("scaling", other)), of_scaling


def _count(place: _Place, params: Params) -> int:
    count = place.stated("num_csx", params.trainer.init.backend.cluster_config.num_csx)
    assert isinstance(count, int), "checked when the grid was made"
    return count


def _overrides(values: Values) -> list[Override]:
    return [Override(key.name, key.path, value) for key, value in values]


def _captured_part(params: Params) -> str:
    """Return a text that is equal for configurations that one captured step serves."""
    trainer = params.dump()["trainer"]
    fit = trainer.get("fit")
    if fit is None:
        raise ConfigError(
            "the params file must have a section trainer.fit",
            code="missing-key",
            where="trainer.fit",
            value="missing",
            rule="a study predicts training steps",
        )
    fit["train_dataloader"].pop("batch_size", None)
    for callback in trainer["init"].get("callbacks") or ():
        callback.get("ScopedTrainFlags", {}).pop("csx.performance.micro_batch_size", None)
    return json.dumps([trainer["init"], fit["train_dataloader"]], default=str, sort_keys=True)


def _with_ideals(rows: Sequence[StudyRow]) -> tuple[StudyRow, ...]:
    """Return the rows with efficiency and ideal rate, from the first feasible point of a curve."""
    found = {id(row): row for row in rows}
    for series in series_of(rows, "num_csx").values():
        feasible = sorted(
            (row for row in series if isinstance(row.point, CurvePoint)),
            key=lambda row: row.num_csx,
        )
        if not feasible:
            continue
        counts = [row.num_csx for row in feasible]
        rates = [row.point.emulated.samples_per_s for row in feasible]  # type: ignore[union-attr]
        for row, rate, efficiency in zip(feasible, rates, efficiencies(counts, rates), strict=True):
            assert isinstance(row.point, CurvePoint)
            point = replace(row.point, efficiency=efficiency)
            found[id(row)] = replace(row, point=point, ideal_samples_per_s=rate / efficiency)
    return tuple(found[id(row)] for row in rows)
