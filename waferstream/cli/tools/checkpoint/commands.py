"""``waferstream checkpoint``: info, diff, copy, move, verify, seal, prune, delete, and conversions.

``verify``, ``seal`` and ``prune`` are our own.
"""

from __future__ import annotations

import argparse
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import reseal
from waferstream.cli.frame.output import prints_json, show, tell, tell_paths
from waferstream.cli.tools.checkpoint.convert import COMMANDS as CONVERSIONS
from waferstream.cli.tools.checkpoint.files import local_path, new_file, write_weights
from waferstream.cli.tools.command import Command, argument
from waferstream.config.phases import load_params
from waferstream.host.files import replacing
from waferstream.training.checkpoints.pruning import pruned_model


def _info(given: argparse.Namespace) -> int:
    path = local_path(given.ckpt_path)
    reader = Reader(path)
    rows = [
        {"key": key, "shape": spec.shape, "dtype": spec.dtype, "bytes": reader.stored_bytes(key)}
        for key, spec in reader.tensors.items()
    ]
    if given.list_objects:
        return show(rows)
    stat = path.stat()
    summary = {
        "Total checkpoint size": f"{stat.st_size:,} bytes",
        "Last modified": f"{datetime.fromtimestamp(stat.st_mtime):%Y-%m-%d %H:%M:%S}",
        "WaferStream version": reader.writer_version,
        "Tensors": len(rows),
        **reader.objects,
    }
    return show([{"field": key, "value": value} for key, value in summary.items()])


def _diff(given: argparse.Namespace) -> int:
    """Compare two checkpoints, tensor by tensor; return 1 if they differ."""
    left, right = (
        Reader(local_path(path)) for path in (given.left_checkpoint, given.right_checkpoint)
    )
    rows = [
        {"key": key, "difference": found}
        for key in {**left.tensors, **right.tensors}
        if (found := _tensor_difference(left, right, key, given.tensor_comparison_op))
    ]
    rows += [
        {"key": key, "difference": f"{left.objects.get(key)!r} and {right.objects.get(key)!r}"}
        for key in {**left.objects, **right.objects}
        if left.objects.get(key) != right.objects.get(key)
    ]
    if not rows and not prints_json():
        print("The checkpoints are equal.")
        return 0
    show(rows)
    return 1 if rows else 0


def _tensor_difference(left: Reader, right: Reader, key: str, op: str) -> str | None:
    """Describe how a tensor differs; None if it does not."""
    for reader, other in ((left, "right"), (right, "left")):
        if key not in reader.tensors:
            return f"only in the {other} checkpoint"
    one, two = left.tensors[key], right.tensors[key]
    if one.shape != two.shape or one.dtype != two.dtype:
        return f"{one.dtype} {one.shape} and {two.dtype} {two.shape}"
    a, b = left[key], right[key]
    equal = np.array_equal(a, b, equal_nan=True) if op == "equal" else np.allclose(a, b)
    if equal:
        return None
    return f"largest difference {np.abs(a.astype(np.float64) - b.astype(np.float64)).max():.3g}"


def _copy(given: argparse.Namespace) -> int:
    return tell_paths(_copied(given))


def _move(given: argparse.Namespace) -> int:
    source = local_path(given.source_path)
    target = _copied(given)
    source.unlink()
    return tell_paths(target)


def _copied(given: argparse.Namespace) -> Path:
    """Copy a complete checkpoint atomically and return its new path."""
    source, target = local_path(given.source_path), local_path(given.dest_path)
    if given.dest_path.endswith("/") or target.is_dir():
        target = target / source.name
    Reader(source)  # refuses what is no complete checkpoint
    new_file(target).parent.mkdir(parents=True, exist_ok=True)
    with replacing(target, durable=True) as partial:
        shutil.copyfile(source, partial)
    return target


def _verify(given: argparse.Namespace) -> int:
    """Check every byte of a checkpoint."""
    path = local_path(given.ckpt_path)
    reader = Reader(path)
    reader.verify()
    row = {"path": path, "checksums": reader.has_checksums, "tensors": len(reader.tensors)}
    if not reader.has_checksums:
        tell(f"{path} has no checksums; waferstream checkpoint seal adds them.", **row)
        return 1
    return tell(f"{path} is as it was written: {len(reader.tensors)} tensors", **row)


def _seal(given: argparse.Namespace) -> int:
    """Write a copy with checksums of a checkpoint that has none, or that was changed on purpose."""
    source, target = local_path(given.source_path), local_path(given.dest_path)
    new_file(target).parent.mkdir(parents=True, exist_ok=True)
    with replacing(target, durable=True) as partial:
        shutil.copyfile(source, partial)
        reseal(partial)
    return tell_paths(target)


def _delete(given: argparse.Namespace) -> int:
    path = local_path(given.ckpt_path)
    Reader(path)  # refuses what is no complete checkpoint
    path.unlink()
    return tell(f"Deleted checkpoint {path}", path=path)


def _prune(given: argparse.Namespace) -> int:
    """Write a copy of a trained model that is pruned at once."""
    target = new_file(local_path(given.dest_path))
    params, source = load_params(given.params), local_path(given.ckpt_path)
    model = pruned_model(params, source, given.sparsity, given.num_batches)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_weights(target, model.state_dict(), {"global_step": 0})
    return tell_paths(target)


def _path(name: str, meaning: str = "checkpoint file") -> Any:
    return argument(name, help=meaning)


_SOURCE_AND_TARGET = (_path("source_path"), _path("dest_path", "file, or folder that ends in /"))

COMMANDS = (
    *CONVERSIONS,
    Command(
        "info",
        "summarize a checkpoint",
        _info,
        (
            _path("ckpt_path"),
            argument("-l", "--list_objects", action="store_true", help="list the tensors"),
        ),
    ),
    Command(
        "diff",
        "compare two checkpoints; exit code 1 if they differ",
        _diff,
        (
            _path("left_checkpoint"),
            _path("right_checkpoint"),
            argument(
                "--tensor_comparison_op",
                choices=("equal", "allclose"),
                default="equal",
                help="how values are compared (default: equal)",
            ),
        ),
    ),
    Command("copy", "copy a checkpoint", _copy, _SOURCE_AND_TARGET),
    Command("move", "move a checkpoint", _move, _SOURCE_AND_TARGET),
    Command("verify", "check the checksums of a checkpoint", _verify, (_path("ckpt_path"),)),
    Command("seal", "copy a checkpoint and add checksums", _seal, _SOURCE_AND_TARGET),
    Command(
        "prune",
        "set weights of a trained model to zero at once, and change the others to make up for it",
        _prune,
        (
            argument("params", type=Path, help="params file of the model and its training data"),
            _path("ckpt_path"),
            _path("dest_path", "file to write"),
            argument("--sparsity", type=float, required=True, help="share of zeros, from 0 to 1"),
            argument(
                "--num_batches", type=int, default=8, help="batches of calibration (default: 8)"
            ),
        ),
    ),
    Command("delete", "delete a checkpoint", _delete, (_path("ckpt_path"),)),
)
