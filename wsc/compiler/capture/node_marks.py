"""Marks that a traced step leaves on its nodes: what is recomputed, and the loss scale."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import traceback as fx_traceback

RECOMPUTE_KEYS = {
    "recompute_region": "waferstream_recompute_region",
    "recompute_ckpt": "waferstream_recompute_checkpoint",
}
"""Keys of the custom annotations of ops that a user's program marks, by the vendor's names."""

LOSS_SCALE_KEY = "waferstream_loss_scale"
"""Key of the custom annotation of a dynamic loss scale."""


@contextmanager
def marked_for_recompute(mark: str, call: int) -> Iterator[None]:
    """Mark the forward ops of one call of a user's function.

    Args:
        mark: ``recompute_region``, whose values are made again in the backward pass, or
            ``recompute_ckpt``, whose results are kept all the same.
        call: A number of the call.
    """
    with fx_traceback.annotate({RECOMPUTE_KEYS[mark]: call}):
        yield


def loss_scale_placeholder() -> torch.Tensor:
    """Return a marked fp32 scalar that stands for the dynamic loss scale, an input of each step."""
    with fx_traceback.annotate({LOSS_SCALE_KEY: True}):
        return torch.full((), 1.0, dtype=torch.float32)
