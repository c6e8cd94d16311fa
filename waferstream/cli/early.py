"""What is wrong with a run that needs no torch to be seen: it is told within a second."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from pathlib import Path
from typing import Any

from appliance.ray.connection.greeting import check_greeting
from appliance.spec import RuntimeSpec
from waferstream.config.params import InitConfig, Mode, Params
from waferstream.config.sections.callbacks import LoadCheckpointStates
from waferstream.core.errors import CheckpointError, ConfigError
from waferstream.core.program.micro_batches import check_systems
from waferstream.core.stores import store_of
from waferstream.core.system_errors import file_error
from waferstream.core.tested_torch import check_torch
from waferstream.core.units import counted
from waferstream.training.results.claim import check_claim
from waferstream.workload.data_files import find_files, out_of_vocabulary, text_empty

_TEXT = "TextDataProcessor"
_STDLIB = "stdlib"
_LEAST_BYTES = 1 << 16  # of a disk: a log and a params file
_MOST_FILES, _BEGINNING = 16, 1 << 16  # of texts that are looked at


def check_run(params: Params, mode: Mode, runtime: RuntimeSpec) -> None:
    """Check what a run on this host needs, reads and writes, before it makes anything.

    Raises:
        WaferStreamError: A batch is smaller than the number of systems, data or a checkpoint are
            not there or do not fit, the model folder cannot be written to or is in use, Ray does
            not answer, or torch is another one.
    """
    init, fit = params.trainer.init, params.trainer.fit
    with suppress(PackageNotFoundError):  # made from its sources, or not there: its import tells
        check_torch(version("torch"))
    is_emulated = init.backend.backend_type == "CSX"
    if is_emulated and runtime.kind == "ray":
        check_greeting(runtime.address)
    if mode.startswith("train") and fit is not None:
        if is_emulated:
            check_systems(fit.train_dataloader.batch_size, init.backend.cluster_config.num_csx)
        _check_data(fit.train_dataloader.dump(), init, "trainer.fit.train_dataloader")
        _check_folder(init.model_dir)
        only_compiles = init.backend.compile_only or init.backend.validate_only
        if fit.ckpt_path == "newest" and not only_compiles:
            _check_newest(init)
        _check_checkpoint(fit.ckpt_path)
    if mode == "eval" and (validation := params.trainer.validation) is not None:
        _check_data(validation.val_dataloader.dump(), init, "trainer.validate.val_dataloader")
        _check_checkpoint(validation.ckpt_path)


def _check_data(loader: Mapping[str, Any], init: InitConfig, where: str) -> None:
    """Refuse text that is not there, empty or of other tokens, as its processor would later."""
    path = loader.get("path")
    if loader.get("data_processor") != _TEXT or not isinstance(path, str) or path == _STDLIB:
        return
    files = find_files(path, loader.get("suffixes", (".txt", ".md", ".py")))
    if not any(file.stat().st_size for file in files):
        raise text_empty(path, f"{counted(len(files), 'file')} of 0 bytes")
    tokens = init.model.dump().get("vocab_size")
    largest = _largest_byte(files)
    if isinstance(tokens, int) and tokens <= largest:
        rule = f"below vocab_size, which is {tokens}"
        remedy = "raise vocab_size: bytes need 256 tokens"
        raise out_of_vocabulary(where, f"the byte {largest} in {path}", rule, remedy)


def _largest_byte(files: Iterable[Path]) -> int:
    """Return the largest byte at the beginning of the first files."""
    beginnings = []
    for file in islice(files, _MOST_FILES):
        with file.open("rb") as content:
            beginnings.append(max(content.read(_BEGINNING), default=0))
    return max(beginnings)


def _check_checkpoint(path: object) -> None:
    """Refuse a checkpoint that is not there, is none, or is damaged."""
    if not isinstance(path, Path) or store_of(path) is not None:
        return
    if not path.exists():
        raise CheckpointError(
            "the checkpoint cannot be read",
            code="checkpoint-not-readable",
            where=str(path),
            value=os.strerror(2),
            remedy=_neighbours(path),
        )
    from waferstream.checkpoint.reader import Reader  # noqa: PLC0415  (h5py)
    from waferstream.workload.weight_kinds import Kind, check_kind, kind_of  # noqa: PLC0415

    kind = kind_of(path)
    check_kind(path, kind)
    if kind is Kind.OURS:
        Reader(path)


def _check_newest(init: InitConfig) -> None:
    """Refuse a model of other sizes than that of the newest checkpoint in the model folder.

    Everything else about the two runs is compared once the model is built.
    """
    section = init.checkpoint
    if section.allow_changes or section.disable_strict_checkpoint_loading:
        return
    if not section.autoload_last_checkpoint or init.callback(LoadCheckpointStates):
        return
    if store_of(init.model_dir) is not None or not any(init.model_dir.glob("*.mdl")):
        return
    from appliance.checkpoints.folder import CheckpointFolder  # noqa: PLC0415  (h5py)
    from waferstream.checkpoint.reader import Reader  # noqa: PLC0415
    from waferstream.training.checkpoints import changes  # noqa: PLC0415

    entries = CheckpointFolder(init.model_dir, section.checkpoint_name).entries()
    path = next((init.model_dir / each.file for each in reversed(entries) if each.is_finite), None)
    if path is None:
        return
    try:
        before = Reader(path).objects.get(changes.STATE) or {}
    except CheckpointError:  # the run resumes from the one before a damaged one
        return
    now = {f"model.{key}": value for key, value in init.model.dump().items()}
    sizes = {key for key, value in now.items() if type(value) is type(before.get(key)) is int}
    if found := changes.changes_of(before, now, sizes):
        raise changes.of_another_run(path, found)


def _neighbours(path: Path) -> str:
    """Return which checkpoints there are in the folder of one that is not there."""
    found = sorted(each.name for each in path.parent.glob("*.mdl")) if path.parent.is_dir() else []
    return f"one of {', '.join(found)}" if found else f"{path.parent} has no checkpoint"


def _check_folder(folder: Path) -> None:
    """Refuse a model folder that is a file, full, in use, or where one may not write."""
    if store_of(folder) is not None:
        return
    there = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise ConfigError(
            "model_dir must be writable",
            code="model-dir-not-writable",
            where=str(folder),
            value=f"{there} is {'read-only' if there.is_dir() else 'no folder'}",
            rule="a folder, or a path at which one can be made",
            remedy="name another one with --model_dir",
        )
    disk = os.statvfs(there)
    if disk.f_blocks and disk.f_bavail * disk.f_frsize < _LEAST_BYTES:
        raise file_error(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder)))
    check_claim(folder)
