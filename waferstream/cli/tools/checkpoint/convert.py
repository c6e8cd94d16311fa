"""``waferstream checkpoint convert``, ``convert-config``, ``list``: weights of other programs."""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.options import new_file
from waferstream.cli.frame.output import show, tell_paths
from waferstream.config.phases import load_params
from waferstream.core.config import dump_yaml
from waferstream.core.errors import ConfigError
from waferstream.host.files import replacing, write_json, write_text
from waferstream.workload.hugging_face import (
    CONVERSIONS,
    INDEX,
    STEMS,
    Conversion,
    Weights,
    read_hf,
    read_json,
    write_weights,
)
from waferstream.workload.published_weights import PUBLISHED, of_our_names
from waferstream.workload.special_tokens import (
    SPECIAL_TOKENS,
    read_special_tokens,
    special_tokens,
    special_tokens_file,
    tokenizer_files,
    with_special_tokens,
)

log = logging.getLogger("waferstream")

HF, ZOO = "hf", "zoo"
Format = Literal["hf", "zoo", "cs-auto", "cs-current"]


@dataclass(frozen=True)
class Formats:
    """Flags that say what is converted into what."""

    src_fmt: Annotated[Format, Option("--src-fmt", help="format of the source")]
    tgt_fmt: Annotated[Format, Option("--tgt-fmt", help="format of the target")]
    model: Annotated[
        str | None,
        Option(help=f"family of a model of transformers: {', '.join(sorted(CONVERSIONS))}"),
    ] = None
    output_dir: Annotated[
        Path | None, Option("--output-dir", help="folder of the target (default: of the source)")
    ] = None

    def check(self) -> None:
        """Raise ConfigError unless both formats differ."""
        if self.src_fmt == self.tgt_fmt:
            raise ConfigError(
                "the formats of source and target must differ",
                code="formats-not-convertible",
                where="--src-fmt, --tgt-fmt",
                value=f"{self.src_fmt}, {self.tgt_fmt}",
            )

    def folder_of(self, source: Path) -> Path:
        """Return the folder of the target, which is made."""
        folder = self.output_dir or source.parent
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @property
    def family(self) -> Conversion:
        """What converts a model of transformers; ConfigError if none is named."""
        if self.model is None:
            raise ConfigError(
                "the family of the model must be named",
                code="missing-key",
                where="--model",
                rule=CONVERSIONS.rule,
            )
        if self.model not in CONVERSIONS:
            raise typer.BadParameter(
                f"{self.model!r} is not {CONVERSIONS.rule}", param_hint="--model"
            )
        return CONVERSIONS[self.model]


_CONFIG_HELP = "config.json of transformers, or a params file"


@command("checkpoint list", "gpt2")
def list_conversions(
    model: Annotated[str | None, Argument(help="family of a model")] = None,
) -> int:
    """List what can be converted."""
    formats = "hf, zoo, cs-current"
    found = {name: each for name, each in sorted(CONVERSIONS.items()) if model in (None, name)}
    return show(
        [
            {"model": name, "ours": each.name, "formats": formats, "as": each.architecture}
            for name, each in found.items()
        ]
    )


@command(
    "checkpoint convert",
    "model.mdl --model gpt2 --src-fmt cs-current --tgt-fmt hf --config params.yaml",
)
def convert(
    checkpoint: Annotated[
        Path, Argument(help="weights of transformers, or a .mdl file of ours or the vendor")
    ],
    config: Annotated[Path, Option(help=_CONFIG_HELP)],
    formats: Formats,
    hf_shard_size: Annotated[str, Option("--hf-shard-size", help="size of a file")] = "10GB",
    export_safetensors: Annotated[
        bool, Option("--export-safetensors", help="write safetensors")
    ] = False,
    drop_unmatched_keys: Annotated[
        bool, Option("--drop-unmatched-keys", help="leave others out")
    ] = False,
) -> int:
    """Convert weights: of transformers (hf), of the vendor's Model Zoo (zoo), ours.

    It prints the files that were written.
    """
    from waferstream.workload.weight_files import (  # noqa: PLC0415  (torch)
        read_weights,
        write_checkpoint,
    )

    formats.check()
    part_bytes = _num_bytes(hf_shard_size)
    folder = formats.folder_of(checkpoint)
    configs: list[Path] = []
    if formats.src_fmt == HF:
        section, configs = _to_our_config(formats.family, config, folder)
        theirs = read_hf(checkpoint)
        if drop_unmatched_keys:
            theirs = formats.family.matched(theirs, section)
        ours = formats.family.to_ours(theirs, section)
        weights = {name: weight.float() for name, weight in ours.items()}
        ids = special_tokens(read_json(config))
    else:
        section, ids = load_params(config).trainer.init.model.dump(), {}
        weights = of_our_names(read_weights(checkpoint), section)
    stem = checkpoint.stem.split(".")[0]
    if formats.tgt_fmt == HF:
        own_ids = read_special_tokens(config, checkpoint)
        configs = [_to_hf_config(formats.family, section, config, folder, own_ids)]
        theirs = formats.family.to_theirs(weights, section)
        written = write_hf(folder, theirs, part_bytes, export_safetensors)
    elif formats.tgt_fmt == ZOO:
        written = [_write_zoo(_new(folder / f"{stem}_to_zoo.mdl"), weights, section)]
    else:
        written = [_new(folder / f"{stem}_to_cs.mdl")]
        kept = {SPECIAL_TOKENS: ids} if ids else {}
        write_checkpoint(written[0], weights, {"global_step": 0, **kept})
    return tell_paths(*written, *configs, *_copy_tokenizer(config.parent, folder))


@command("checkpoint convert-config", "config.json --model gpt2 --src-fmt hf --tgt-fmt cs-current")
def convert_config(config: Annotated[Path, Argument(help=_CONFIG_HELP)], formats: Formats) -> int:
    """Convert a configuration only."""
    formats.check()
    folder = formats.folder_of(config)
    if formats.tgt_fmt == HF:
        section = load_params(config).trainer.init.model.dump()
        ids = read_special_tokens(config)
        configs = [_to_hf_config(formats.family, section, config, folder, ids)]
    else:
        configs = _to_our_config(formats.family, config, folder)[1]
    return tell_paths(*configs, *_copy_tokenizer(config.parent, folder))


def _write_zoo(target: Path, weights: Weights, section: dict[str, Any]) -> Path:
    """Write a checkpoint of the vendor's zoo, which cstorch.load reads as well; return its path."""
    import torch  # noqa: PLC0415  (slow)

    theirs = PUBLISHED[ZOO].to_theirs(weights, section)
    own = {name: weight.clone() for name, weight in theirs.items()}
    with replacing(target, durable=True) as partial:
        torch.save({"model": own}, partial)
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
    write_text(target, dump_yaml({"trainer": {"init": {"model": section}}}))
    return section, [target, *kept]


def _to_hf_config(
    family: Conversion, section: dict[str, Any], params: Path, folder: Path, ids: Mapping[str, Any]
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
    stem, _, suffix = name.partition(".")
    parts = list(_parts(weights, part_bytes))
    ends = [f"-{i:05}-of-{len(parts):05}" if parts[1:] else "" for i in range(1, len(parts) + 1)]
    files = [_new(folder / f"{stem}{end}.{suffix}") for end in ends]
    for file, part in zip(files, parts, strict=True):
        write_weights(file, part, {})
    if len(files) == 1:
        return files
    places = {key: file.name for file, part in zip(files, parts, strict=True) for key in part}
    size = sum(weight.nbytes for weight in weights.values())
    index = _new(folder / f"{name}{INDEX}")
    write_json(index, {"metadata": {"total_size": size}, "weight_map": places})
    return [index, *files]


def _parts(weights: Weights, part_bytes: int) -> Iterator[Weights]:
    """Yield the weights in order, in parts of at most ``part_bytes`` or of one weight."""
    part: Weights = {}
    for name, weight in weights.items():
        if part and sum(other.nbytes for other in part.values()) + weight.nbytes > part_bytes:
            yield part
            part = {}
        part[name] = weight
    yield part


def _num_bytes(text: str) -> int:
    """Parse ``10GB``."""
    found = re.fullmatch(r"(\d{0,9}\.?\d{1,9})([KMG])B", text, re.IGNORECASE)
    size = found and int(float(found[1]) * 1000 ** (1 + "KMG".index(found[2].upper())))
    if not size:
        raise typer.BadParameter(
            f"{text!r} must be a size such as 10GB", param_hint="--hf-shard-size"
        )
    return size
