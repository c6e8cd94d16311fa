"""``waferstream checkpoint convert``, ``convert-config`` and ``list``: to transformers and back."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import torch

from waferstream.checkpoint import MODEL
from waferstream.checkpoint.reader import Reader
from waferstream.cli.tools.checkpoint.files import new_file, write_weights
from waferstream.cli.tools.command import TABLE_FLAGS, Command, argument, show, tell_paths
from waferstream.config.phases import load_params
from waferstream.core.config import dump_yaml
from waferstream.core.errors import ConfigError
from waferstream.host.files import replacing, write_json
from waferstream.workload.hugging_face import (
    CONVERSIONS,
    INDEX,
    STEMS,
    Conversion,
    Weights,
    read_hf,
    read_json,
    safetensors,
)

HF = "hf"
OURS = ("cs-auto", "cs-current")


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
        ours = {name: weight.float() for name, weight in family.to_ours(weights, section).items()}
        write_weights(written[0], ours, {"global_step": 0})
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


def write_hf(folder: Path, weights: Weights, part_bytes: int, as_safetensors: bool) -> list[Path]:
    """Write weights as transformers reads them, in parts of at most ``part_bytes`` with an index.

    Returns:
        The files, the index first.
    """
    name = STEMS[0] if as_safetensors else STEMS[1]
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
    write_json(_new(folder / f"{name}{INDEX}"), index)
    return [folder / f"{name}{INDEX}", *written]


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
            safetensors().save_file(own, partial, metadata={"format": "pt"})
        else:
            torch.save(own, partial)
    return path


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
