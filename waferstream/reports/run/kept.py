"""The runs that folders of models keep: what each trained, and in what two of them differ."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from waferstream.core.config import load_yaml
from waferstream.core.errors import ConfigError, did_you_mean
from waferstream.core.units import format_count, format_rate
from waferstream.reports.run.summary import SUMMARY_NAME, RunSummary

_NAME = re.compile(r"\d{8}_\d{6}(_\d+)*")
"""The name of the folder of a run: when it began."""

_DEPTH = 4
"""Folders below the one that is searched, so that a search of a whole disk ends."""

PARAMS_NAME = "trainer_params.yaml"
"""The configuration of a run, in its folder."""

_NOT_COMPARED = re.compile(r"(^|\.)(model_dir|compile_dir)$")


_FIGURES = (
    *("STATUS", "MODEL", "PARAMETERS", "SYSTEMS", "BATCH", "STEPS", "LOSS", "EVAL LOSS"),
    *("SAMPLES/S", "EMULATED", "WEIGHTS"),
)


@dataclass(frozen=True)
class KeptRun:
    """The folder of a run; ``summary`` is None where the run has not ended."""

    path: Path
    summary: RunSummary | None

    @classmethod
    def of(cls, path: Path) -> KeptRun:
        """Read a run from its folder."""
        try:
            data = json.loads((path / SUMMARY_NAME).read_text(encoding="utf-8"))
            return cls(path, RunSummary.from_json(data))
        except (OSError, ValueError):
            return cls(path, None)

    @property
    def name(self) -> str:
        """When it began, which names it in the folder of its model."""
        return self.path.name

    @property
    def model_dir(self) -> Path:
        """The folder of its model."""
        return self.path.parent

    def figures(self) -> dict[str, str]:
        """Return what a table says about it."""
        found = dict.fromkeys(_FIGURES, "")
        found["STATUS"] = "not ended"
        return found if self.summary is None else {**found, **_figures_of(self.summary)}

    def row(self) -> dict[str, str]:
        """Return its line in a table of runs."""
        return {"RUN": self.name, "FOLDER": str(self.model_dir), **self.figures()}

    def configuration(self) -> dict[str, Any]:
        """Return the keys of its configuration, dotted."""
        try:
            return dict(flat(load_yaml(self.path / PARAMS_NAME)))
        except (OSError, ConfigError):
            return {}

    def remove(self) -> None:
        """Remove the folder of the run, and what leads to it; checkpoints of the model stay."""
        own = self.path.resolve()
        for link in (*self.model_dir.iterdir(), *self.model_dir.glob("cerebras_logs/*")):
            if link.is_symlink() and own in (link.resolve(), *link.resolve().parents):
                link.unlink()
        shutil.rmtree(self.path)


def _figures_of(summary: RunSummary) -> dict[str, str]:
    """Return the figures of a run that has ended, as far as it has them."""
    measured, emulated = summary.measured, summary.emulated
    found = {
        "STATUS": summary.status,
        "MODEL": summary.model.name,
        "PARAMETERS": format_count(summary.model.parameters),
        "SYSTEMS": f"{summary.num_csx} x {summary.system}",
        "BATCH": f"{summary.batch_size:,}",
        "STEPS": f"{summary.first_step:,} to {summary.last_step:,}",
        "WEIGHTS": (summary.weights_sha256 or "")[:8],
    }
    if summary.train:
        found["LOSS"] = f"{summary.train[-1][1]:.5f}"
    if summary.eval:
        found["EVAL LOSS"] = f"{summary.eval[-1][1]:.5f}"
    if measured is not None:
        found["SAMPLES/S"] = format_rate(measured.samples_per_s)
    if emulated is not None:
        found["EMULATED"] = format_rate(emulated.samples_per_s)
    return found


def find_runs(places: Sequence[Path]) -> list[KeptRun]:
    """Return the runs below some folders, oldest first.

    Raises:
        ConfigError: A place is no folder.
    """
    found = {path.resolve(): path for place in places for path in _folders(place)}
    return [KeptRun.of(path) for path in sorted(found.values(), key=lambda path: path.name)]


def find_run(given: Path) -> KeptRun:
    """Return a run by its folder, its name below this folder, or the newest of a model's folder.

    Raises:
        ConfigError: There is no such run, or there are several of that name.
    """
    if given.is_dir() and not _is_run(given):
        runs = find_runs([given])
    elif given.is_dir():
        return KeptRun.of(given)
    else:
        runs = [run for run in find_runs([Path()]) if run.name.startswith(str(given))]
    if given.is_dir() and runs:
        return runs[-1]
    if len(runs) != 1:
        names = [run.name for run in runs or find_runs([Path()])]
        raise ConfigError(
            "a run must be one that is kept",
            code="unknown-run",
            where="waferstream runs",
            value=given,
            rule=f"its folder or its name; here: {', '.join(names[-5:]) or 'none'}",
            remedy=did_you_mean(str(given), names) if not runs else "give more of the name",
        )
    return runs[0]


def differing_keys(runs: Sequence[KeptRun]) -> dict[str, list[Any]]:
    """Return the keys of which not all runs have the same value, each with their values."""
    configurations = [run.configuration() for run in runs]
    keys = dict.fromkeys(key for each in configurations for key in each)
    values = {key: [each.get(key) for each in configurations] for key in keys}
    return {
        key: found
        for key, found in values.items()
        if any(value != found[0] for value in found) and not _NOT_COMPARED.search(key)
    }


def _folders(place: Path) -> Iterator[Path]:
    if not place.is_dir():
        raise ConfigError(
            "runs must be looked for in a folder",
            code="not-a-folder",
            where="waferstream runs",
            value=place,
            remedy="name the folder of a model, or one above it",
        )
    if _is_run(place):
        yield place
        return
    yield from _below(place, _DEPTH)


def _below(place: Path, depth: int) -> Iterator[Path]:
    try:
        children = sorted(
            each for each in place.iterdir() if each.is_dir() and not each.is_symlink()
        )
    except OSError:
        return
    for child in children:
        if _is_run(child):
            yield child
        elif depth > 1 and not child.name.startswith("."):
            yield from _below(child, depth - 1)


def _is_run(path: Path) -> bool:
    return _NAME.fullmatch(path.name) is not None and (path / PARAMS_NAME).is_file()


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings and lists by their dotted keys."""
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from flat(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for index, each in enumerate(value):
            yield from flat(each, f"{path}[{index}]")
    else:
        yield path, value
