"""Bytes on the links and time of a step, dense and sparse, on a cluster in this process."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from appliance.elaboration.elaborate import ClusterSize, elaborate, plan_installation
from appliance.local import LocalRoles
from benchmarks.sparsity.model import Layers, update_of
from csnode.engine.spec import TORCH, EngineSpec
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.core.messages.message_numbers import MessageNumbers
from waferstream.core.messages.messages import Envelope, GradientReady, WeightsReady
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Fill, Install
from waferstream.core.roles.installation import InputFeed, Installation
from waferstream.core.roles.role import Job, RoleSpec
from waferstream.machine.hardware import MachineSpec
from waferstream.numerics.precision import CARRIED, StreamPrecision

MACHINE = MachineSpec()
MICRO_BATCHES = 4
ROUTES = {WeightsReady: "weights", GradientReady: "gradients"}


class Ran(NamedTuple):
    """Elapsed time and processor time of a step, and the bytes that it has sent, by kind."""

    elapsed_s: float
    cpu_s: float
    num_bytes: dict[str, int]


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
    optimizer = update_of(model, share)
    feed = InputFeed(partial(batches, rows, width), (0, 1))
    return plan_installation(compiled, feed, optimizer, ClusterSize(num_csx=2), MACHINE)


class Arm:
    """A cluster of two systems in this process, dense or sparse."""

    def __init__(
        self,
        width: int,
        depth: int,
        rows: int,
        dtype: str,
        share: float,
        engine: EngineSpec = TORCH,
    ) -> None:
        model = Layers(width, depth)
        installation = installed(model, rows, width, dtype, share)
        size = ClusterSize(num_csx=2, engine=engine)
        specs = elaborate(installation.program.parameters, size, MACHINE, 0)
        self._roles = _CountingRoles(specs)
        values = {name: value.detach() for name, value in model.named_parameters()}
        self._roles.do(["wgt-0"], Fill(values))
        self._roles.do(None, Install(installation))
        self._step = 0
        self.run(1)  # indexes are made and decoded once

    def run(self, steps: int) -> Ran:
        """Run steps; return what one of them took and sent."""
        self._roles.num_bytes.clear()
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        self._roles.run(Job(ProgramKind.TRAIN, self._step + 1, self._step + steps))
        elapsed_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
        self._step += steps
        per_step = {name: total // steps for name, total in self._roles.num_bytes.items()}
        return Ran(elapsed_s / steps, cpu_s / steps, per_step)


def measure_links(
    width: int, depth: int, rows: int, share: float, turns: int
) -> list[dict[str, Any]]:
    """Return bytes and seconds of dense and sparse steps, by type of the stream."""
    results = []
    for dtype in ("bfloat16", "float32"):
        dense, sparse = (Arm(width, depth, rows, dtype, s) for s in (0.0, share))
        pairs = [_pair(dense, sparse, is_dense_first=turn % 2 == 0) for turn in range(turns)]
        dense_bytes, sparse_bytes = (ran.num_bytes for ran in pairs[0])
        saved = {name: 1 - sparse_bytes[name] / dense_bytes[name] for name in dense_bytes}
        ratios = sorted(plain.elapsed_s / packed.elapsed_s for plain, packed in pairs)
        results.append(
            {
                "stream_dtype": dtype,
                "element_bytes": CARRIED[dtype].itemsize,
                "sparsity": share,
                "dense_bytes": dense_bytes,
                "sparse_bytes": sparse_bytes,
                "saved": saved,
                "saved_in_all": 1 - sum(sparse_bytes.values()) / sum(dense_bytes.values()),
                "throughput_over_dense": statistics.median(ratios),
                "range": (ratios[0], ratios[-1]),
                "middle_half": (ratios[turns // 4], ratios[turns - 1 - turns // 4]),
                "per_processor_second_over_dense": statistics.median(
                    plain.cpu_s / packed.cpu_s for plain, packed in pairs
                ),
            }
        )
    return results


def _pair(dense: Arm, sparse: Arm, is_dense_first: bool) -> tuple[Ran, Ran]:
    """Run a step of both, one after the other; return dense and sparse."""
    if is_dense_first:
        return dense.run(1), sparse.run(1)
    packed = sparse.run(1)
    return dense.run(1), packed
