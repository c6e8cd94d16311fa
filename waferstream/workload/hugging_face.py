"""Models of Hugging Face: their configurations and weights, and what converts them.

Packages offer conversions as entry points (``waferstream.core.plugins``), as the zoo does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.core.plugins import Plugins
from waferstream.host.files import replacing

if TYPE_CHECKING:
    import torch

Weights: TypeAlias = "dict[str, torch.Tensor]"

INDEX = ".index.json"
"""The end of the name of a file that lists the parts of weights."""

STEMS = ("model.safetensors", "pytorch_model.bin")
"""The names of files of weights, in the order in which they are looked for."""


class Conversion(Protocol):
    """What converts configurations and weights of one kind of model."""

    @property
    def name(self) -> str:
        """Our model."""

    @property
    def architecture(self) -> str:
        """Class of transformers with the output layer."""

    def section(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the complete model section for a config.json."""

    def configuration(self, section: Mapping[str, Any]) -> dict[str, Any]:
        """Return config.json for a model section of ours."""

    def matched(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights that our model has."""

    def to_ours(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of our model."""

    def to_theirs(self, weights: Weights, section: Mapping[str, Any]) -> Weights:
        """Return the weights of transformers' model."""


CONVERSIONS = Plugins[Conversion]("converters")
"""By the name of ``--model``: ``model_type`` of transformers, or a model of ours."""


def read_hf(path: Path) -> Weights:
    """Read weights that transformers wrote: a file, the index of several, or their folder."""
    if path.is_dir():
        names = (f"{stem}{end}" for end in ("", INDEX) for stem in STEMS)
        path = next((path / name for name in names if (path / name).is_file()), path)
    if not path.is_file():
        raise _unreadable(path, "no weights of transformers")
    if not path.name.endswith(INDEX):
        return _read_file(path)
    parts = (_read_file(path.parent / file) for file in _files_of(path))
    return {name: weight for part in parts for name, weight in part.items()}


def _files_of(index: Path) -> list[str]:
    """Return the names of the files that an index lists; CheckpointError unless all lie beside it.

    A path would let the index of a stranger read other files of the user.
    """
    found = read_json(index).get("weight_map")
    files: list[Any] = list(found.values()) if isinstance(found, dict) else [found]
    wrong = [file for file in files if not _is_name(file)]
    if wrong:
        raise CheckpointError(
            "an index must name files of its folder",
            code="hf-index-malformed",
            where=f"{index}: weight_map",
            value=wrong[0],
            rule="the name of a weight, and that of the file beside the index which holds it",
        )
    return sorted(set(files))


def _is_name(file: object) -> bool:
    return isinstance(file, str) and Path(file).name == file not in ("", "..")


def _read_file(path: Path) -> Weights:
    import torch  # noqa: PLC0415  (slow)

    try:
        if path.suffix == ".safetensors":
            loaded: Weights = safetensors().load_file(path)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each format has errors of its own
        raise _unreadable(path, error) from error
    if not isinstance(loaded, dict) or not all(map(_is_weight, loaded.items())):
        raise _unreadable(path, "the file holds other things than tensors by name")
    return loaded


def _is_weight(item: tuple[object, object]) -> bool:
    import torch  # noqa: PLC0415  (slow)

    name, value = item
    is_tensor = isinstance(value, torch.Tensor) and value.layout is torch.strided
    return isinstance(name, str) and is_tensor


def _unreadable(path: Path, value: object) -> CheckpointError:
    return CheckpointError(
        "the weights cannot be read",
        code="hf-weights-not-readable",
        where=str(path),
        value=value,
        rule="model.safetensors, pytorch_model.bin, the index of their parts, or their folder",
    )


def safetensors() -> Any:
    """Return the module that reads and writes safetensors; ConfigError if it is missing."""
    try:
        return import_module("safetensors.torch")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the package safetensors must be installed",
            code="safetensors-missing",
            remedy="pip install safetensors, or use pytorch_model.bin",
        ) from error


def write_weights(path: Path, weights: Weights, metadata: Mapping[str, str]) -> None:
    """Write weights to a file of safetensors, with metadata, or to one of torch.save."""
    import torch  # noqa: PLC0415  (slow)

    own = {name: weight.clone() for name, weight in weights.items()}  # no storage of its views
    with replacing(path, durable=True) as partial:
        if path.suffix == ".safetensors":
            safetensors().save_file(own, partial, metadata={"format": "pt", **metadata})
        else:
            torch.save(own, partial)


def read_json(path: Path) -> Mapping[str, Any]:
    """Return the mapping in a file of JSON; ConfigError if it is none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            "the file is not JSON", code="file-not-json", where=str(path), value=error
        ) from error
    if not isinstance(found, dict):
        raise ConfigError("the file must be a mapping", code="file-not-a-mapping", where=str(path))
    return found
