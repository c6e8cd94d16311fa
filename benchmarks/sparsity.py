"""Measure what non-zeros save: index and packing, bytes on links, time of steps, and the clock.

    python -m benchmarks.sparsity --json benchmarks/results/sparsity.json \\
        --picture docs/sparsity.png

Format: bytes of the index by density, its crossovers, and packing beside a copy of the dense
tensor. Links: bytes of all payloads of one step on a cluster in this process whose products are all
sparse, over those of a dense one, and the seconds of a step; dense and sparse steps take turns.
Clock: emulated time of one product of GPT-3 (12288 x 12288) by density, over that at density 1,
beside the vendor's claim of a speed-up near 1 / density (Hot Chips 34, 2022: measured on this
product), and its headline of 10 times at 90 %.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import nn

from appliance.elaborate import ClusterSize, elaborate, plan_installation
from appliance.local import LocalRoles
from timing.cost import segment_costs
from timing.hardware import MachineSpec
from waferstream.reports.benchmark import new_file, new_result
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.precision import CARRIED, StreamPrecision
from wsc.core.files import write_json
from wsc.core.installation import InputFeed, Installation
from wsc.core.message_numbers import MessageNumbers
from wsc.core.messages import Envelope, GradientReady, WeightsReady
from wsc.core.nonzeros import Index
from wsc.core.optimizer import OptimizerSpec, ParamGroup
from wsc.core.program import OpWork, Program, Segment, TensorSpec
from wsc.core.role import Job, RoleSpec
from wsc.core.sparsity import Constant, WeightSparsity

MACHINE = MachineSpec()
DENSITIES = (0.02, 0.05, 0.1, 0.2, 0.25, 0.5, 0.75, 0.9, 1.0)
MICRO_BATCHES = 4
ROUTES = {WeightsReady: "weights", GradientReady: "gradients"}


class Layers(nn.Module):
    """Equal linear layers whose forward pass is its own loss."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Return the mean squared distance of (B, width) outputs to ``y``."""
        hidden = x.to(next(self.parameters()).dtype)
        for layer in self.layers:
            hidden = torch.relu(layer(hidden))
        return (hidden.float() - y).square().mean()


class _CountingNumbers(MessageNumbers):
    """Numbers of messages that also count the bytes of payloads, by kind of message."""

    def __init__(self, counted: Counter[str]) -> None:
        super().__init__()
        self._counted = counted

    def numbered(self, envelope: Envelope) -> Envelope:
        """Count a message and return it numbered."""
        message = envelope.message
        if isinstance(message, WeightsReady | GradientReady):
            self._counted[ROUTES[type(message)]] += message.payload.num_bytes
        return super().numbered(envelope)


class _CountingRoles(LocalRoles):
    """Roles in this process, and the bytes that they have sent each other."""

    def rebuild(self, specs: Sequence[RoleSpec], lost: Collection[str]) -> frozenset[str]:
        self.num_bytes: Counter[str] = Counter()
        self._numbers = {spec.name: _CountingNumbers(self.num_bytes) for spec in specs}
        return super().rebuild(specs, lost)


def batches(rows: int, width: int) -> list[dict[str, torch.Tensor]]:
    """Return one global batch."""
    return [{"x": torch.randn(rows, width), "y": torch.randn(rows, width)}]


def installed(model: Layers, rows: int, width: int, dtype: str, share: float) -> Installation:
    """Return a training program with AdamW, every product of which has a share of zeros."""
    (batch,) = batches(rows, width)
    inputs = [(name, tensor[: rows // MICRO_BATCHES]) for name, tensor in batch.items()]

    def step(leaves: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        loss = model(*leaves)
        loss.backward()
        return [loss]

    precision = StreamPrecision(dtype, dtype)
    request = CompileRequest(precision, rows // MICRO_BATCHES, MICRO_BATCHES, target="benchmark")
    compiled, _ = compile_step(step, model, inputs, request)
    names = tuple(name for name, _ in model.named_parameters())
    hyper = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.0,
             "correct_bias": True, "amsgrad": False}  # fmt: skip
    sparsity = tuple(
        WeightSparsity(name, "static", level=Constant(value=share))
        for name in names
        if share and name.endswith("weight")
    )
    optimizer = OptimizerSpec("AdamW", (ParamGroup(names, hyper),), sparsity=sparsity)
    feed = InputFeed(partial(batches, rows, width), (0, 1))
    return plan_installation(compiled, feed, optimizer, ClusterSize(num_csx=2), MACHINE)


class _Arm:
    """A cluster of two systems in this process, dense or sparse."""

    def __init__(self, width: int, depth: int, rows: int, dtype: str, share: float) -> None:
        model = Layers(width, depth)
        installation = installed(model, rows, width, dtype, share)
        specs = elaborate(installation.program.parameters, ClusterSize(num_csx=2), MACHINE, 0)
        self._roles = _CountingRoles(specs)
        values = {name: value.detach() for name, value in model.named_parameters()}
        self._roles.fill("wgt-0", values)
        self._roles.install(installation)
        self._step = 0
        self.store = self._roles.holder("wgt-0").store  # type: ignore[attr-defined]
        self.run(1)  # indexes are made and decoded once

    def run(self, steps: int) -> tuple[float, dict[str, int]]:
        """Return the seconds of a step and the bytes that it sends."""
        self._roles.num_bytes.clear()
        start_s = time.perf_counter()
        self._roles.run(Job("train", self._step + 1, self._step + steps))
        self._step += steps
        per_step = {name: total // steps for name, total in self._roles.num_bytes.items()}
        return (time.perf_counter() - start_s) / steps, per_step

    def stored_bytes(self) -> dict[str, int]:
        """Return the bytes of masters and optimizer state as held, and as values and index."""
        held = packed = 0
        for name in self.store.masters:
            tensors = [t for key, t in self.store.of(name).items() if key != "mask words"]
            held += sum(tensor.nbytes for tensor in tensors)
            index = (
                Index.of(self.store.masks.dense(name))
                if name in self.store.masks
                else Index.dense(tensors[0].numel())
            )
            packed += index.num_bytes + sum(
                4 * (index.num_present if t.numel() == index.num_elements else t.numel())
                for t in tensors
            )
        return {"held": held, "as_values_and_index": packed}


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


def measure_links(
    width: int, depth: int, rows: int, share: float, turns: int
) -> list[dict[str, Any]]:
    """Return bytes and seconds of dense and sparse steps, by type of the stream."""
    results = []
    for dtype in ("bfloat16", "float32"):
        dense, sparse = (_Arm(width, depth, rows, dtype, s) for s in (0.0, share))
        pairs = [(dense.run(1), sparse.run(1)) for _ in range(turns)]
        (_, dense_bytes), (_, sparse_bytes) = pairs[0]
        saved = {name: 1 - sparse_bytes[name] / dense_bytes[name] for name in dense_bytes}
        ratios = sorted(plain[0] / packed[0] for plain, packed in pairs)
        stored = sparse.stored_bytes()
        results.append(
            {
                "stream_dtype": dtype,
                "element_bytes": CARRIED[dtype].itemsize,
                "sparsity": share,
                "dense_bytes": dense_bytes,
                "sparse_bytes": sparse_bytes,
                "saved": saved,
                "saved_in_all": 1 - sum(sparse_bytes.values()) / sum(dense_bytes.values()),
                "stored_bytes": stored,
                "stored_saved": 1 - stored["as_values_and_index"] / stored["held"],
                "throughput_over_dense": statistics.median(ratios),
                "range": (ratios[0], ratios[-1]),
            }
        )
    return results


def emulated_speed_up(width: int, tokens: int) -> list[dict[str, float]]:
    """Return the speed-up of one streamed product by density, and its error against 1 / density."""
    op = OpWork("mm", "matmul", 1, (1, tokens, width, width), streams=True)
    segment = Segment(0, "forward", "layer", ("w",), (), (), (), (), (), (op,))
    program = Program(
        "eval",
        "",
        (TensorSpec("w", (width, width), "float32"),),
        "float16",
        (),
        1,
        (segment,),
        1,
        1,
    )

    def compute_ps(density: float) -> int:
        densities: Mapping[str, float] = {"w": density} if density < 1 else {}
        return segment_costs(program, MACHINE.system, densities)[0].compute_ps

    dense_ps = compute_ps(1.0)
    return [
        {
            "density": density,
            "speed_up": dense_ps / compute_ps(density),
            "error": dense_ps / compute_ps(density) * density - 1,
        }
        for density in (1.0, 0.75, 0.5, 0.4, 0.3, 0.25, 0.2, 0.15, 0.1)
    ]


def draw(points: Sequence[Mapping[str, float]], path: Path) -> None:
    """Draw the emulated speed-up over the published ones."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    zeros = [100 * (1 - point["density"]) for point in points]
    axes.plot(zeros, [point["speed_up"] for point in points], "o-", label="emulated, CS-2")
    axes.plot(zeros, [1 / point["density"] for point in points], "k:", label="1 / density")
    axes.plot([90], [10], "r*", markersize=12, label="published: 10 times at 90 %")
    axes.annotate(f"{points[-1]['error']:+.0%}", (zeros[-1], points[-1]["speed_up"]), ha="right")
    axes.set(xlabel="zeros, %", ylabel="speed-up", title="One product of GPT-3, 12288 x 12288")
    axes.legend()
    figure.savefig(path, dpi=120)


def _fastest(act: Callable[[], object], times: int = 5) -> float:
    act()
    best = float("inf")
    for _ in range(times):
        start_s = time.perf_counter()
        act()
        best = min(best, time.perf_counter() - start_s)
    return best


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write and print the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=new_file, required=True)
    parser.add_argument("--picture", type=new_file)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--rows", type=int, default=256, help="samples of a step")
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    result = new_result("What do the non-zeros of sparse weights save?")
    result["format"] = measure_format(options.width**2)
    result["links"] = measure_links(options.width, options.depth, options.rows, 0.9, options.turns)
    result["emulated"] = emulated_speed_up(12288, 50_000)
    write_json(options.json, result)
    if options.picture:
        draw(result["emulated"], options.picture)
    for link in result["links"]:
        print(
            f"{link['stream_dtype']}: 90 % zeros save {link['saved_in_all']:.1%} of the bytes on "
            f"links, {link['stored_saved']:.1%} of masters and state; "
            f"{link['throughput_over_dense']:.2f} of the dense throughput"
        )


if __name__ == "__main__":
    main()
