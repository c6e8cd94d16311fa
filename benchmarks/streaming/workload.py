"""Workload of every arm: one GPT, one stream of batches, one optimizer, on the same cores."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from csnode.engine.spec import KernelCode
from waferstream.core.program.micro_batches import MicroBatchPolicy
from waferstream.reports.benchmark import positive
from waferstream.workload.data import BatchSource, build_source
from waferstream.workload.models import build_model

Precision = Literal["bf16-stream", "bf16", "fp32"]
PRECISIONS: tuple[Precision, ...] = ("bf16-stream", "bf16", "fp32")

ADAMW: dict[str, Any] = {"lr": 1e-4, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}

_HEAD_DIM = 64  # GPT-2 has heads of 64 and a filter of 4 x hidden in all its sizes
_FILTER_FACTOR = 4


@dataclass(frozen=True)
class Layout:
    """How a loop in memory takes a batch: its micro-batches, and the threads.

    With one lane, micro-batches follow one another and torch's threads share every op; with more,
    as many micro-batches run side by side on one thread each.
    """

    micro_batch_size: int
    lanes: int = 1

    def __str__(self) -> str:
        lanes = f", {self.lanes} side by side" if self.lanes > 1 else ""
        return f"micro-batch {self.micro_batch_size}{lanes}"


@dataclass(frozen=True)
class Workload:
    """GPT-2 of some size and its training; picklable, because it is sent to the arms.

    ``precision`` is the dtype of weights and kernels: ``bf16-stream`` rounds weights for the stream
    and computes in fp32 (arms that do not stream are in fp32), ``bf16`` and ``fp32`` apply to both.
    ``batch_size`` is global; ``cores`` is the number of cores that an arm may use. ``micro_batch``
    states the samples of a micro-batch of the streamed cluster; None leaves them to its ``auto``.
    ``kernels`` are those of its systems (``runtime.engine.kernels``).
    """

    hidden: int
    layers: int
    vocab: int
    sequence_length: int
    batch_size: int
    precision: Precision
    cores: int
    micro_batch: int | None = None
    kernels: KernelCode = "eager"

    @property
    def micro_batch_size(self) -> int:
        """Samples in a micro-batch of the streamed cluster: its own default, or as stated."""
        return MicroBatchPolicy(self.micro_batch or "auto").size(self.batch_size, num_csx=1)

    @property
    def layouts(self) -> list[Layout]:
        """The layouts to try for a loop in memory: powers of two, with and without lanes."""
        powers = (1 << k for k in range(self.batch_size.bit_length()))
        sizes = [size for size in powers if self.batch_size % size == 0]
        lanes = sorted({1, self.cores})
        return [
            Layout(size, n)
            for size in sorted({*sizes, self.batch_size})
            for n in lanes
            if n <= self.batch_size // size
        ]

    @property
    def tokens(self) -> int:
        """Tokens of one step."""
        return self.batch_size * self.sequence_length

    @property
    def loader(self) -> dict[str, Any]:
        """Dataloader section of a params.yaml."""
        return {
            "data_processor": "DummyDataProcessor",
            "batch_size": self.batch_size,
            "max_sequence_length": self.sequence_length,
            "vocab_size": self.vocab,
        }

    def source(self) -> BatchSource:
        """Return the source of random tokens, the same for every arm."""
        source: BatchSource = build_source(self.loader, "workload")
        return source

    def model(self) -> nn.Module:
        """Return the model with fp32 weights, the same for every arm, on torch's default device."""
        config = {
            "name": "gpt2",
            "vocab_size": self.vocab,
            "max_position_embeddings": self.sequence_length,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_heads": max(1, self.hidden // _HEAD_DIM),
            "filter_size": _FILTER_FACTOR * self.hidden,
            "embedding_dropout_rate": 0.0,
            "dropout_rate": 0.0,
            "attention_dropout_rate": 0.0,
        }
        return build_model(config, seed=0)

    def num_parameters(self) -> int:
        """Return the number of trained elements, without allocating them."""
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in self.model().parameters())


def has_fast_bf16() -> bool:
    """Return whether this CPU multiplies bf16 in hardware (AVX-512 BF16 or AMX)."""
    return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()


def workload_of(options: argparse.Namespace, batch_size: int) -> Workload:
    """Return the workload that the flags of ``workload_flags`` state, on all cores."""
    return Workload(
        hidden=options.hidden,
        layers=options.layers,
        vocab=options.vocab,
        sequence_length=options.sequence_length,
        batch_size=batch_size,
        precision=options.precision,
        cores=len(os.sched_getaffinity(0)),
    )


def workload_flags() -> argparse.ArgumentParser:
    """Return a parent parser with the flags of model and precision."""
    parser = argparse.ArgumentParser(add_help=False)
    workload = parser.add_argument_group("workload")
    workload.add_argument("--precision", choices=PRECISIONS, default=PRECISIONS[0])
    workload.add_argument("--layers", type=positive, default=12)
    workload.add_argument("--hidden", type=positive, default=768)
    workload.add_argument("--vocab", type=positive, default=16384)
    workload.add_argument("--sequence_length", type=positive, default=512)
    return parser
