"""Bytes of masters and optimizer state, dense and sparse: in MemoryX, in flash, in a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.sparsity.model import Layers, update_of
from memoryx.memory.flash import FlashMemory
from memoryx.memory.flash_spec import FlashSpec
from memoryx.store.persistence import Persistence
from memoryx.store.store import WeightStore
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.checkpoint.parts import read_parts
from waferstream.checkpoint.writer import reserve_tensors, write_metadata
from waferstream.core.optimizer.spec import OptimizerSpec
from waferstream.core.program.program import TensorSpec
from waferstream.core.units import GIB


def stored_bytes(
    parameters: Sequence[TensorSpec], optimizer: OptimizerSpec, folder: Path
) -> dict[str, int]:
    """Return the bytes of masters and state in MemoryX, in its flash tier and in a checkpoint."""
    flash = FlashMemory(FlashSpec(path=folder, resident_bytes=GIB))
    found: dict[str, int] = {}
    for memory in (None, flash):
        store = WeightStore(parameters, memory)
        store.fill({spec.name: torch.randn(spec.shape) for spec in parameters})
        store.train_with(optimizer)
        store.make_masks()
        if memory is None:
            found["memoryx"] = store.num_bytes
            persistence, path = Persistence(store, "wgt-0"), folder / "checkpoint.mdl"
            offsets = reserve_tensors(path, persistence.layout(list(CLUSTER_STATES)))
            persistence.save(path, offsets, is_background=False)
            persistence.finish_saving()
            write_metadata(path, {}, read_parts(path, ["wgt-0"]))
            found["checkpoint"] = path.stat().st_size
    places_bytes = sum(map(store.masks.index_bytes, store.masks))
    words_bytes = sum(mask.words.nbytes for mask in store.masks.values())  # they lie in flash
    return {**found, "flash": flash.num_bytes, "dram beside flash": places_bytes - words_bytes}


def measure_stored(width: int, depth: int, share: float) -> dict[str, Any]:
    """Return the bytes of a dense and a sparse model with AdamW, and the share that is saved."""
    model = Layers(width, depth)
    parameters = [
        TensorSpec(name, tuple(value.shape), "float32") for name, value in model.named_parameters()
    ]
    arms = {}
    for name, zeros in (("dense", 0.0), ("sparse", share)):
        with TemporaryDirectory() as folder:
            arms[name] = stored_bytes(parameters, update_of(model, zeros), Path(folder))
    saved = {
        tier: 1 - arms["sparse"][tier] / arms["dense"][tier]
        for tier in ("memoryx", "flash", "checkpoint")
    }
    return {"sparsity": share, **arms, "saved": saved}
