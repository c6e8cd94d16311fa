"""First masks, and the masks that follow from weights and gradients.

Ties are broken by position, and random scores are keyed by (seed, weight, update), so that a mask
depends on nothing but the values of its weight. Counts and orders are the vendor's
(cerebras_pytorch 2.10, ``sparse``); the algorithms are those of Zhu and Gupta 2017
(arXiv:1710.01878, ``gmp``), Mocanu et al. 2018 (Nature Communications 9:2383, ``set``) and Evci et
al. 2020 (arXiv:1911.11134, ``rigl``).
"""

from __future__ import annotations

import math

import numpy as np
import torch

from waferstream.core.rng import stream_key
from waferstream.core.sparsity.spec import WeightSparsity, kept_of


def first_mask(spec: WeightSparsity, weight: torch.Tensor) -> torch.Tensor:
    """Return the mask of a weight before the first update.

    A mask that the user's program gives is sent later; until then all weights are kept.
    """
    share = spec.target(0)
    if not spec.starts_sparse or spec.init == "given":
        return torch.ones(weight.shape, dtype=torch.bool)
    if spec.init == "from_zeros" or share is None:
        return weight != 0
    if spec.init == "checkerboard":
        return checkerboard(tuple(weight.shape), share)
    score = weight.abs() if spec.init == "topk" else random_score(spec, tuple(weight.shape), 0)
    return largest(score, share, spec)


def next_mask(
    spec: WeightSparsity,
    mask: torch.Tensor,
    weight: torch.Tensor,
    gradient: torch.Tensor,
    update: int,
) -> torch.Tensor:
    """Return the mask of a weight after an update that changes it.

    Args:
        spec: The sparsity of the weight.
        mask: The mask so far.
        weight: The updated weight, zero where it is masked.
        gradient: Its gradient; for ``rigl`` that of masked weights, too.
        update: The number of the update, from 1.
    """
    if spec.algorithm == "gmp":
        share = spec.target(update)
        assert share is not None, "gmp has a level"
        return largest(weight.abs(), share, spec)
    remaining = _grouped(mask, spec).sum(dim=1)
    keep = np.float32(1) - np.float32(spec.dropped(update))
    num_kept = [int(keep * np.float32(int(count))) for count in remaining]
    # Where masked weights are no candidates, a weight that is zero by chance is still one.
    score = torch.where(mask, weight.abs(), -1.0)
    kept = _top(score, num_kept, spec)
    grown = (
        gradient.abs().nan_to_num(nan=0.0, posinf=math.inf)
        if spec.algorithm == "rigl"
        else random_score(spec, tuple(weight.shape), update)
    )
    share = spec.target(update)
    size = weight.numel() // spec.groups
    wanted = remaining.tolist() if share is None else [kept_of(size, share)] * spec.groups
    missing = [max(0, want - have) for want, have in zip(wanted, num_kept, strict=True)]
    return kept | _top(torch.where(kept, -1.0, grown), missing, spec)


def largest(score: torch.Tensor, share: float, spec: WeightSparsity) -> torch.Tensor:
    """Return the mask that keeps the largest scores; a share of each group is masked."""
    count = kept_of(score.numel() // spec.groups, share)
    return _top(score, [count] * spec.groups, spec)


def random_score(spec: WeightSparsity, shape: tuple[int, ...], update: int) -> torch.Tensor:
    """Return uniform random numbers for a weight and an update."""
    key = stream_key(spec.seed, "sparsity", spec.name, update)
    return torch.rand(shape, generator=torch.Generator().manual_seed(key))


def checkerboard(shape: tuple[int, ...], share: float) -> torch.Tensor:
    """Return a mask whose weights are evenly spaced, in rows that are shifted by one."""
    columns, size = shape[-1] if shape else 1, math.prod(shape)
    kept = kept_of(size, share)
    row, column = np.divmod(np.arange(size), max(columns, 1))
    place = row * columns + (column + row) % max(columns, 1)
    return torch.from_numpy((place + 1) * kept // size > place * kept // size).view(shape)


def top(score: torch.Tensor, count: int) -> torch.Tensor:
    """Return the mask of the ``count`` largest flat scores; of equals the first ones."""
    if count >= score.numel():
        return torch.ones_like(score, dtype=torch.bool)
    if count <= 0:
        return torch.zeros_like(score, dtype=torch.bool)
    threshold = score.kthvalue(score.numel() - count + 1).values
    mask = score > threshold
    equal = torch.nonzero(score == threshold).flatten()
    mask[equal[: count - int(mask.sum())]] = True
    return mask


def _top(score: torch.Tensor, counts: list[int], spec: WeightSparsity) -> torch.Tensor:
    """Return the mask of the largest scores, so many in every group."""
    rows = _grouped(score, spec)
    masks = torch.stack([top(row, count) for row, count in zip(rows, counts, strict=True)])
    if spec.in_groups == 1:
        return masks.view(score.shape)
    outputs, inputs = score.shape
    return masks.view(inputs, outputs).t().contiguous()


def _grouped(tensor: torch.Tensor, spec: WeightSparsity) -> torch.Tensor:
    """Return a weight's elements with one row for each group."""
    if spec.in_groups > 1:
        tensor = tensor.t()
    return tensor.reshape(spec.groups, -1)
