"""Measure what non-zeros save: index and packing, bytes on links and stored, time of steps.

    python -m benchmarks.sparsity --json benchmarks/results/sparsity.json --rows 512

Format: bytes of the index by density, its crossovers, and packing beside a copy of the dense
tensor. Links: bytes of all payloads of one step on a cluster in this process whose products are all
sparse, over those of a dense one, and the seconds of a step; dense and sparse steps take turns.
Stored: bytes of masters and state of that model in MemoryX, in files of its flash tier, and in a
checkpoint, masks and places of values included.
``benchmarks.sparsity.speed_up`` has the emulated time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benchmarks.sparsity.links import measure_links
from benchmarks.sparsity.model import Layers, layer_flags, update_of
from memoryx.memory.flash import FlashMemory
from memoryx.memory.flash_spec import FlashSpec
from memoryx.store.persistence import Persistence
from memoryx.store.store import WeightStore
from waferstream.checkpoint import CLUSTER_STATES
from waferstream.checkpoint.parts import read_parts
from waferstream.checkpoint.writer import reserve_tensors, write_metadata
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import TensorSpec
from waferstream.core.sparsity.nonzeros import Index
from waferstream.core.units import GIB
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result, positive

DENSITIES = (0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 0.75, 0.9, 1.0)


def measure_format(num_elements: int) -> list[dict[str, Any]]:
    """Return, by density, bytes of an index and the rate of packing beside that of a copy."""
    dense = torch.randn(num_elements).to(torch.bfloat16)
    target = torch.empty_like(dense)
    copied_s = _fastest(lambda: target.copy_(dense))
    rows = []
    for density in DENSITIES:
        mask = torch.from_numpy(np.random.default_rng(0).random(num_elements) < density)
        index = Index.of(mask, 2)
        values = index.pack(dense)
        gigabytes = dense.nbytes / 1e9
        rows.append(
            {
                "density": density,
                "encoding": index.encoding,
                "index_bits_per_element": 8 * index.num_bytes / num_elements,
                "bytes_over_dense": (values.nbytes + index.num_bytes) / dense.nbytes,
                "copy_gb_per_s": gigabytes / copied_s,
                "pack_gb_per_s": gigabytes / _fastest(partial(index.pack, dense)),
                "unpack_gb_per_s": gigabytes / _fastest(partial(index.unpack, values)),
            }
        )
    return rows


def _fastest(act: Callable[[], object], times: int = 5) -> float:
    act()
    best = float("inf")
    for _ in range(times):
        start_s = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - start_s)
    return best


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, write what was asked for, and print the result."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").partition("\n")[0], parents=[layer_flags(rows=256)]
    )
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--turns", type=positive, default=15, help="pairs of steps")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    result = new_result("What do the non-zeros of sparse weights save?")
    result["format"] = measure_format(options.width**2)
    result["links"] = measure_links(options.width, options.depth, options.rows, 0.9, options.turns)
    result["stored"] = measure_stored(options.width, options.depth, 0.9)
    if options.json is not None:
        write_json(options.json, result)
    for link in result["links"]:
        slowest, fastest = link["range"]
        low, high = link["middle_half"]
        print(
            f"{link['stream_dtype']}: 90 % zeros save {link['saved_in_all']:.1%} of the bytes on "
            f"links; {link['throughput_over_dense']:.2f} of the dense throughput "
            f"(half of the pairs {low:.2f} to {high:.2f}, all {slowest:.2f} to {fastest:.2f}; by "
            "processor time "
            f"{link['per_processor_second_over_dense']:.2f})"
        )
    shares = ", ".join(f"{tier} {saved:.1%}" for tier, saved in result["stored"]["saved"].items())
    print(f"masters and state with AdamW take less by: {shares}")


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


if __name__ == "__main__":
    main()
