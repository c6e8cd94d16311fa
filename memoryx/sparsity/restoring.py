"""The masks of a checkpoint: those that a server reads, and whether they fit its weights."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from memoryx.sparsity.masks import Masks
from waferstream.core.errors import CheckpointError

_NUM_SHOWN = 3  # weights in an error


def present_masks(
    masks: Masks, owned: Collection[str], found: Collection[str], where: str, strict: bool
) -> list[str]:
    """Return the weights whose masks are read from a checkpoint.

    A checkpoint without masks is one of a dense run: the masks are made from its weights. A run
    without masks reads none: it goes on densely.

    Args:
        masks: Those of the server.
        owned: All weights of the server.
        found: The weights whose masks the checkpoint has.
        where: The checkpoint.
        strict: Whether the same weights must be sparse.

    Raises:
        CheckpointError: Other weights are sparse, and ``strict`` is set.
    """
    if strict and masks and found:
        missing = masks.keys() - set(found)
        unexpected = set(found) & set(owned) - masks.keys()
        if missing or unexpected:
            raise _mismatch(
                "a checkpoint must have masks of the weights that are sparse in the run",
                where,
                f"missing: {_some(missing)}; unexpected: {_some(unexpected)}",
            )
    return [name for name in masks if name in found]


def check_density(masks: Masks, names: Iterable[str], where: str) -> None:
    """Check that masks from a checkpoint have the density that the run asks for.

    Only algorithms that keep a constant density, and that have begun with it, say what that is.

    Raises:
        CheckpointError: One of them has another density.
    """
    for name in names:
        spec, mask = masks.spec(name), masks[name]
        is_constant = spec.level is not None and spec.level.is_constant and spec.starts_sparse
        expected = spec.num_kept(mask.shape, 0) if is_constant else None
        if spec.init in ("given", "from_zeros") or expected is None:
            continue
        if mask.num_kept != expected:
            raise _mismatch(
                "a mask must have the density that the run asks for",
                where,
                f"{name}: {mask.num_kept} of {mask.num_elements} weights, not {expected}",
            )


def _mismatch(what: str, where: str, value: str) -> CheckpointError:
    return CheckpointError(
        what,
        code="checkpoint-sparsity-mismatch",
        where=where,
        value=value,
        remedy="use the section `sparsity` that the checkpoint was trained with, or leave the "
        "state `sparsity` out (LoadCheckpointStates) to make new masks from the weights",
    )


def _some(names: Collection[str]) -> str:
    shown = sorted(names)[:_NUM_SHOWN]
    more = f", ... ({len(names)} in total)" if len(names) > _NUM_SHOWN else ""
    return ", ".join(shown) + more if shown else "none"
