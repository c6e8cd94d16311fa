"""``waferstream checkpoint convert``, ``convert-config``, ``list``: weights of other programs."""

from __future__ import annotations

import argparse
import logging
import shutil
from collections.abc import Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any

import torch

from waferstream.cli.frame.output import show, tell_paths
from waferstream.cli.tools.checkpoint.files import new_file, write_weights
from waferstream.cli.tools.command import Command, argument
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
)
from waferstream.workload.hugging_face import write_weights as write_hf_weights
from waferstream.workload.published_weights import PUBLISHED, of_our_names
from waferstream.workload.special_tokens import (
    SPECIAL_TOKENS,
    read_special_tokens,
    special_tokens,
    special_tokens_file,
    tokenizer_files,
    with_special_tokens,
)
from waferstream.workload.weight_files import read_weights

log = logging.getLogger("waferstream")

HF, ZOO = "hf", "zoo"
OURS = ("cs-auto", "cs-current")


def _list(given: argparse.Namespace) -> int:
    rows = [
        {
            "model": name,
            "ours": family.name,
            "formats": "hf, zoo, cs-current",
            "as": family.architecture,
        }
        for name, family in sorted(CONVERSIONS.items())
        if given.model in (None, name)
    ]
    return show(rows)


def _convert(given: argparse.Namespace) -> int:
    """Convert weights and configuration; print the files that were written."""
    _check_formats(given)
    folder = given.output_dir or given.checkpoint.parent
    folder.mkdir(parents=True, exist_ok=True)
    configs: list[Path] = []
    if given.src_fmt == HF:
        section, configs = _to_our_config(_family(given), given.config, folder)
    else:
        section = load_params(given.config).trainer.init.model.dump()
    weights = _our_weights(given, section)
    if given.tgt_fmt == HF:
        ids = read_special_tokens(given.config, given.checkpoint)
        configs = [_to_hf_config(_family(given), section, given.config, folder, ids)]
        theirs = _family(given).to_theirs(weights, section)
        written = write_hf(folder, theirs, given.hf_shard_size, given.export_safetensors)
    else:
        written = [_write_ours(given, folder, weights, section)]
    return tell_paths(*written, *configs, *_copy_tokenizer(given.config.parent, folder))


def _convert_config(given: argparse.Namespace) -> int:
    _check_formats(given)
    family, folder = _family(given), given.output_dir or given.config.parent
    folder.mkdir(parents=True, exist_ok=True)
    if given.tgt_fmt == HF:
        section = load_params(given.config).trainer.init.model.dump()
        ids = read_special_tokens(given.config)
        configs = [_to_hf_config(family, section, given.config, folder, ids)]
    else:
        configs = _to_our_config(family, given.config, folder)[1]
    return tell_paths(*configs, *_copy_tokenizer(given.config.parent, folder))


def _check_formats(given: argparse.Namespace) -> None:
    """Raise ConfigError unless both formats are there, and differ."""
    if given.src_fmt == given.tgt_fmt:
        raise ConfigError(
            "the formats of source and target must differ",
            code="formats-not-convertible",
            where="--src-fmt, --tgt-fmt",
            value=f"{given.src_fmt}, {given.tgt_fmt}",
        )


def _family(given: argparse.Namespace) -> Conversion:
    """Return what converts a model of transformers; ConfigError if none is named."""
    if given.model is None:
        raise ConfigError(
            "the family of the model must be named",
            code="missing-key",
            where="--model",
            rule=CONVERSIONS.rule,
        )
    return CONVERSIONS[given.model]


def _our_weights(given: argparse.Namespace, section: dict[str, Any]) -> Weights:
    """Return the weights of the source by our names."""
    if given.src_fmt != HF:
        return of_our_names(read_weights(given.checkpoint), section)
    family, weights = _family(given), read_hf(given.checkpoint)
    if given.drop_unmatched_keys:
        weights = family.matched(weights, section)
    return {name: weight.float() for name, weight in family.to_ours(weights, section).items()}


def _write_ours(
    given: argparse.Namespace, folder: Path, weights: Weights, section: dict[str, Any]
) -> Path:
    """Write a checkpoint of ours, or one of the vendor's zoo; return its path."""
    stem = given.checkpoint.stem.split(".")[0]
    if given.tgt_fmt == ZOO:
        target = _new(folder / f"{stem}_to_zoo.mdl")
        theirs = PUBLISHED[ZOO].to_theirs(weights, section)
        own = {name: weight.clone() for name, weight in theirs.items()}
        with replacing(target, durable=True) as partial:  # which cstorch.load reads as well
            torch.save({"model": own}, partial)
        return target
    target = _new(folder / f"{stem}_to_cs.mdl")
    ids = special_tokens(read_json(given.config)) if given.src_fmt == HF else {}
    write_weights(target, weights, {"global_step": 0, **({SPECIAL_TOKENS: ids} if ids else {})})
    return target


def _to_our_config(
    family: Conversion, path: Path, folder: Path
) -> tuple[dict[str, Any], list[Path]]:
    """Write a params file with the model of a config.json, and its special tokens beside it.

    Returns:
        The model section, and the files.
    """
    config = read_json(path)
    section, ids = family.section(config), special_tokens(config)
    target = _new(folder / f"{path.stem}_to_cs.yaml")
    kept = [_new(special_tokens_file(target))] if ids else []
    for file in kept:
        write_json(file, ids)
    with replacing(target) as partial:
        partial.write_text(dump_yaml({"trainer": {"init": {"model": section}}}), encoding="utf-8")
    return section, [target, *kept]


def _to_hf_config(
    family: Conversion,
    section: dict[str, Any],
    params: Path,
    folder: Path,
    ids: Mapping[str, Any],
) -> Path:
    """Write config.json for the model section of a params file; return its path."""
    target = _new(folder / "config.json")
    if not ids:
        log.warning(
            "%s has no special tokens of its own (there is no %s): programs that write text take "
            "those of transformers' %s",
            target, special_tokens_file(params).name, family.architecture,
        )  # fmt: skip
    write_json(target, with_special_tokens(family.configuration(section), ids))
    return target


def _copy_tokenizer(source: Path, folder: Path) -> list[Path]:
    """Copy the tokenizer beside a configuration; return the files that were not there before."""
    copied = []
    for file in tokenizer_files(source):
        target = folder / file.name
        if not target.exists() or target.read_bytes() != file.read_bytes():
            copied.append(Path(shutil.copyfile(file, _new(target))))
    return copied


def _new(path: Path) -> Path:
    return new_file(path, "name another folder with --output-dir")


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
    write_hf_weights(path, weights, {})
    return path


_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


def _num_bytes(text: str) -> int:
    """Parse ``10GB``; ValueError for any other text, which argparse reports."""
    number, unit = text[:-2], text[-2:].upper()
    if unit not in _UNITS or not 0 < float(number) < inf:
        raise ValueError(text)
    return int(float(number) * _UNITS[unit])


_FORMATS = (
    argument("--model", choices=sorted(CONVERSIONS), help="family of a model of transformers"),
    argument("--src-fmt", required=True, choices=(HF, ZOO, *OURS), help="format of the source"),
    argument("--tgt-fmt", required=True, choices=(HF, ZOO, *OURS), help="format of the target"),
    argument("--output-dir", type=Path, help="folder of the target (default: of the source)"),
)
_CONFIG_HELP = "config.json of transformers, or a params file"

COMMANDS = (
    Command(
        "convert",
        "convert weights: of transformers (hf), of the vendor's Model Zoo (zoo), ours",
        _convert,
        (
            argument(
                "checkpoint",
                type=Path,
                help="weights of transformers, or a .mdl file of ours or the vendor",
            ),
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
        (argument("model", nargs="?", help="family of a model"),),
    ),
)
