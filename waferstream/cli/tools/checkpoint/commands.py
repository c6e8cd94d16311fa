"""``waferstream checkpoint``: info, diff, copy, move, verify, seal, prune, delete, and conversions.

``verify``, ``seal`` and ``prune`` are our own.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from typer import Argument, Option

from waferstream.checkpoint.reader import Reader
from waferstream.checkpoint.writer import reseal
from waferstream.cli.frame.commands import command
from waferstream.cli.frame.options import Params, new_file
from waferstream.cli.frame.output import prints_json, show, show_facts, tell, tell_paths
from waferstream.config.phases import load_params
from waferstream.core.errors import ConfigError
from waferstream.host.files import replacing

_Checkpoint = Annotated[str, Argument(help="checkpoint file")]
_Target = Annotated[str, Argument(help="file, or folder that ends in /")]


def _local(path: str) -> Path:
    """Return a local path; ConfigError for a URL."""
    if "://" in path:
        raise ConfigError(
            "a checkpoint must be a local file",
            code="checkpoint-not-local",
            value=path,
            remedy="copy the object to this host first",
        )
    return Path(path)


@command("checkpoint info", "model_dir/checkpoint_120.mdl")
def summarize(
    ckpt_path: _Checkpoint,
    list_objects: Annotated[bool, Option("-l", "--list_objects", help="list the tensors")] = False,
) -> int:
    """Summarize a checkpoint."""
    path = _local(ckpt_path)
    reader = Reader(path)
    rows = [
        {"key": key, "shape": spec.shape, "dtype": spec.dtype, "bytes": reader.stored_bytes(key)}
        for key, spec in reader.tensors.items()
    ]
    if list_objects:
        return show(rows)
    stat = path.stat()
    return show_facts(
        {
            "Total checkpoint size": f"{stat.st_size:,} bytes",
            "Last modified": f"{datetime.fromtimestamp(stat.st_mtime):%Y-%m-%d %H:%M:%S}",
            "WaferStream version": reader.writer_version,
            "Tensors": len(rows),
            **reader.objects,
        }
    )


@command("checkpoint diff", "model_dir/checkpoint_100.mdl model_dir/checkpoint_120.mdl")
def diff(
    left_checkpoint: _Checkpoint,
    right_checkpoint: _Checkpoint,
    tensor_comparison_op: Annotated[
        Literal["equal", "allclose"], Option(help="how values are compared")
    ] = "equal",
) -> int:
    """Compare two checkpoints, tensor by tensor; the exit code is 1 if they differ."""
    left, right = (Reader(_local(path)) for path in (left_checkpoint, right_checkpoint))
    rows = [
        {"key": key, "difference": found}
        for key in {**left.tensors, **right.tensors}
        if (found := _tensor_difference(left, right, key, tensor_comparison_op))
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


@command("checkpoint copy", "model_dir/checkpoint_120.mdl kept.mdl")
def copy(source_path: _Checkpoint, dest_path: _Target) -> int:
    """Copy a checkpoint."""
    return tell_paths(_copied(source_path, dest_path))


@command("checkpoint move", "model_dir/checkpoint_120.mdl kept.mdl")
def move(source_path: _Checkpoint, dest_path: _Target) -> int:
    """Move a checkpoint."""
    target = _copied(source_path, dest_path)
    _local(source_path).unlink()
    return tell_paths(target)


def _copied(source_path: str, dest_path: str, *, seals: bool = False) -> Path:
    """Copy a complete checkpoint, or one to be sealed, atomically, and return its new path."""
    source, target = _local(source_path), _local(dest_path)
    if dest_path.endswith("/") or target.is_dir():
        target = target / source.name
    if not seals:
        Reader(source)  # refuses what is no complete checkpoint
    new_file(target).parent.mkdir(parents=True, exist_ok=True)
    with replacing(target, durable=True) as partial:
        shutil.copyfile(source, partial)
        if seals:
            reseal(partial)
    return target


@command("checkpoint verify", "model_dir/checkpoint_120.mdl")
def verify(ckpt_path: _Checkpoint) -> int:
    """Check the checksums of a checkpoint, and so every byte of it."""
    path = _local(ckpt_path)
    reader = Reader(path)
    reader.verify()
    row = {"path": path, "checksums": reader.has_checksums, "tensors": len(reader.tensors)}
    if not reader.has_checksums:
        tell(f"{path} has no checksums; waferstream checkpoint seal adds them.", **row)
        return 1
    return tell(f"{path} is as it was written: {len(reader.tensors)} tensors", **row)


@command("checkpoint seal", "model_dir/checkpoint_120.mdl sealed.mdl")
def seal(source_path: _Checkpoint, dest_path: _Target) -> int:
    """Copy a checkpoint and add checksums: it has none, or was changed on purpose."""
    return tell_paths(_copied(source_path, dest_path, seals=True))


@command("checkpoint delete", "model_dir/checkpoint_100.mdl")
def delete(ckpt_path: _Checkpoint) -> int:
    """Delete a checkpoint."""
    path = _local(ckpt_path)
    Reader(path)  # refuses what is no complete checkpoint
    path.unlink()
    return tell(f"Deleted checkpoint {path}", path=path)


@command("checkpoint prune", "params.yaml dense.mdl sparse.mdl --sparsity 0.75")
def prune(
    params: Params,
    ckpt_path: _Checkpoint,
    dest_path: Annotated[str, Argument(help="file to write")],
    sparsity: Annotated[float, Option(help="share of zeros, from 0 to 1")],
    num_batches: Annotated[int, Option(help="batches of calibration")] = 8,
) -> int:
    """Set weights of a trained model to zero at once, and change the others to make up for it."""
    from waferstream.training.checkpoints.pruning import pruned_model  # noqa: PLC0415  (torch)
    from waferstream.workload.weight_files import write_checkpoint  # noqa: PLC0415

    target = new_file(_local(dest_path))
    model = pruned_model(load_params(params), _local(ckpt_path), sparsity, num_batches)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_checkpoint(target, model.state_dict(), {"global_step": 0})
    return tell_paths(target)
