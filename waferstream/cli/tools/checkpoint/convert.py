"""``waferstream checkpoint convert``, ``convert-config`` and ``list``: to transformers and back."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from math import inf
from pathlib import Path
from typing import Any, Protocol

import torch

from waferstream.checkpoint import MODEL
from waferstream.checkpoint.reader import Reader
from waferstream.cli.tools.checkpoint.files import new_file, write_weights
from waferstream.cli.tools.command import TABLE_FLAGS, Command, argument, show, tell_paths
from waferstream.config.phases import load_params
from waferstream.core.config import dump_yaml
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.core.plugins import Plugins
from waferstream.host.files import replacing, write_json

Weights = dict[str, torch.Tensor]

HF = "hf"
OURS = ("cs-auto", "cs-current")
_INDEX = ".index.json"


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


def _list(given: argparse.Namespace) -> int:
    rows = [
        {"model": name, "ours": family.name, "formats": "hf, cs-current", "as": family.architecture}
        for name, family in sorted(CONVERSIONS.items())
        if given.model in (None, name)
    ]
    return show(given, rows)


def _convert(given: argparse.Namespace) -> int:
    """Convert weights and configuration; print the files that were written."""
    family, folder = CONVERSIONS[given.model], given.output_dir or given.checkpoint.parent
    folder.mkdir(parents=True, exist_ok=True)
    if _direction(given) == HF:
        section, config = _to_hf_config(family, given.config, folder)
        weights = family.to_theirs(_our_weights(given.checkpoint), section)
        written = write_hf(folder, weights, given.hf_shard_size, given.export_safetensors)
    else:
        section, config = _to_our_config(family, given.config, folder)
        weights = read_hf(given.checkpoint)
        if given.drop_unmatched_keys:
            weights = family.matched(weights, section)
        written = [_new(folder / f"{given.checkpoint.stem.split('.')[0]}_to_cs.mdl")]
        write_weights(written[0], family.to_ours(weights, section), {"global_step": 0})
    return tell_paths(given, *written, config)


def _convert_config(given: argparse.Namespace) -> int:
    family, folder = CONVERSIONS[given.model], given.output_dir or given.config.parent
    folder.mkdir(parents=True, exist_ok=True)
    make = _to_hf_config if _direction(given) == HF else _to_our_config
    return tell_paths(given, make(family, given.config, folder)[1])


def _direction(given: argparse.Namespace) -> str:
    """Return the target format; ConfigError unless one side is transformers."""
    if (given.src_fmt == HF) == (given.tgt_fmt == HF):
        raise ConfigError(
            "one of the formats must be hf, the other ours",
            code="formats-not-convertible",
            where="--src-fmt, --tgt-fmt",
            value=f"{given.src_fmt}, {given.tgt_fmt}",
        )
    return str(given.tgt_fmt)


def _to_our_config(family: Conversion, path: Path, folder: Path) -> tuple[dict[str, Any], Path]:
    """Write a params file with the model of a config.json; return its section and its path."""
    section = family.section(read_json(path))
    target = _new(folder / f"{path.stem}_to_cs.yaml")
    with replacing(target) as partial:
        partial.write_text(dump_yaml({"trainer": {"init": {"model": section}}}), encoding="utf-8")
    return section, target


def _to_hf_config(family: Conversion, path: Path, folder: Path) -> tuple[dict[str, Any], Path]:
    """Write config.json for the model of a params file; return the file's section and the path."""
    section = load_params(path).trainer.init.model.dump()
    target = _new(folder / "config.json")
    write_json(target, family.configuration(section))
    return section, target


def _new(path: Path) -> Path:
    return new_file(path, "name another folder with --output-dir")


def _our_weights(path: Path) -> Weights:
    reader = Reader(path)
    return {name: torch.from_numpy(reader[f"{MODEL}.{name}"]) for name in reader.names(MODEL)}


def read_hf(path: Path) -> Weights:
    """Read weights that transformers wrote: a file, the index of several, or their folder."""
    if path.is_dir():
        names = (f"{stem}{end}" for end in ("", _INDEX) for stem in _STEMS)
        path = next((path / name for name in names if (path / name).is_file()), path)
    if not path.is_file():
        raise _unreadable(path, "no weights of transformers")
    if not path.name.endswith(_INDEX):
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


_STEMS = ("model.safetensors", "pytorch_model.bin")


def _read_file(path: Path) -> Weights:
    try:
        if path.suffix == ".safetensors":
            loaded: Weights = _safetensors().load_file(path)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # each format has errors of its own
        raise _unreadable(path, error) from error
    if not isinstance(loaded, dict) or not all(map(_is_weight, loaded.items())):
        raise _unreadable(path, "the file holds other things than tensors by name")
    return loaded


def _is_weight(item: tuple[object, object]) -> bool:
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


def write_hf(folder: Path, weights: Weights, part_bytes: int, as_safetensors: bool) -> list[Path]:
    """Write weights as transformers reads them, in parts of at most ``part_bytes`` with an index.

    Returns:
        The files, the index first.
    """
    name = _STEMS[0] if as_safetensors else _STEMS[1]
    parts = list(_parts(weights, part_bytes))
    if len(parts) == 1:
        return [_write_file(_new(folder / name), weights)]
    stem, _, suffix = name.partition(".")
    files = [f"{stem}-{i:05}-of-{len(parts):05}.{suffix}" for i in range(1, len(parts) + 1)]
    index = {
        "metadata": {"total_size": sum(weight.nbytes for weight in weights.values())},
        "weight_map": {key: file for file, part in zip(files, parts, strict=True) for key in part},
    }
    written = [
        _write_file(_new(folder / file), part) for file, part in zip(files, parts, strict=True)
    ]
    write_json(_new(folder / f"{name}{_INDEX}"), index)
    return [folder / f"{name}{_INDEX}", *written]


def _parts(weights: Weights, part_bytes: int) -> Iterator[Weights]:
    """Yield the weights in order, in parts of at most ``part_bytes`` or of one weight."""
    part: Weights = {}
    for name, weight in weights.items():
        if part and sum(other.nbytes for other in part.values()) + weight.nbytes > part_bytes:
            yield part
            part = {}
        part[name] = weight
    yield part


def _write_file(path: Path, weights: Weights) -> Path:
    own = {name: weight.clone() for name, weight in weights.items()}  # no storage of its views
    with replacing(path, durable=True) as partial:
        if path.suffix == ".safetensors":
            _safetensors().save_file(own, partial, metadata={"format": "pt"})
        else:
            torch.save(own, partial)
    return path


def _safetensors() -> Any:
    try:
        return import_module("safetensors.torch")
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the package safetensors must be installed",
            code="safetensors-missing",
            remedy="pip install safetensors, or use pytorch_model.bin",
        ) from error


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


_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


def _num_bytes(text: str) -> int:
    """Parse ``10GB``; ValueError for any other text, which argparse reports."""
    number, unit = text[:-2], text[-2:].upper()
    if unit not in _UNITS or not 0 < float(number) < inf:
        raise ValueError(text)
    return int(float(number) * _UNITS[unit])


_FORMATS = (
    argument("--model", required=True, choices=sorted(CONVERSIONS), help="family of the model"),
    argument("--src-fmt", required=True, choices=(HF, *OURS), help="format of the source"),
    argument("--tgt-fmt", required=True, choices=(HF, *OURS), help="format of the target"),
    argument("--output-dir", type=Path, help="folder of the target (default: of the source)"),
)
_CONFIG_HELP = "config.json of transformers, or a params file"

COMMANDS = (
    Command(
        "convert",
        "convert weights to transformers or from it",
        _convert,
        (
            argument("checkpoint", type=Path, help="weights of transformers, or a .mdl file"),
            *_FORMATS,
            argument("--config", type=Path, required=True, help=_CONFIG_HELP),
            argument("--hf-shard-size", type=_num_bytes, default="10GB", help="size of a file"),
            argument("--export-safetensors", action="store_true", help="write safetensors"),
            argument("--drop-unmatched-keys", action="store_true", help="leave others out"),
        ),
    ),
    Command(
        "convert-config",
        "convert a configuration only",
        _convert_config,
        (argument("config", type=Path, help=_CONFIG_HELP), *_FORMATS),
    ),
    Command(
        "list",
        "list what can be converted",
        _list,
        (argument("model", nargs="?", help="family of a model"), *TABLE_FLAGS),
    ),
)
