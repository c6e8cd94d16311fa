"""What a device can do at most, and what share of it a step uses."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch

from benchmarks.streaming.workload import Workload
from csnode.devices import DeviceName
from waferstream.baselines.gpu import A100_80, B200, H100, H200
from waferstream.core.units import MIB

_TRIALS = 5


def seconds_of(act: Callable[[], object], device: DeviceName) -> float:
    """Return the median seconds of a few calls, after one that does not count."""
    taken = []
    for _ in range(_TRIALS + 1):
        start_s = time.perf_counter()
        act()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start_s)
    return median(taken[1:])


def product_flops_per_s(device: DeviceName, size: int) -> float:
    """Return the rate of a bf16 product of square matrices of random numbers."""
    left, right = (torch.randn(size, size).to(device, torch.bfloat16) for _ in range(2))
    return 2 * size**3 / seconds_of(lambda: left @ right, device)


def copy_bytes_per_s(device: DeviceName, mib: int) -> dict[str, float]:
    """Return the rates of copies: from memory to memory of the host, to the device and back."""
    is_pinned = device == "cuda"
    num_bytes = mib * MIB
    pageable = torch.zeros(num_bytes, dtype=torch.uint8)
    host = torch.zeros(num_bytes, dtype=torch.uint8, pin_memory=is_pinned)
    there = torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    copies = {
        "host": (host, pageable),
        "to_device": (there, host),
        "to_device_pageable": (there, pageable),
        "to_host": (host, there),
    }
    return {
        name: num_bytes / seconds_of(partial(to.copy_, of, non_blocking=True), device)
        for name, (to, of) in copies.items()
    }


def published_peak(name: str) -> float | None:
    """Return the 16-bit FLOPs per second of the data sheet of a GPU; None if it is not known."""
    known = {"A100": A100_80, "H100": H100, "H200": H200, "B200": B200}
    found = [spec for word, spec in known.items() if word in name]
    return found[0].flops_16bit_per_s if found else None


def model_flops(workload: Workload) -> float:
    """Return the model FLOPs of a step: products of weights, and attention to all tokens.

    Chowdhery et al. 2022 (arXiv:2204.02311), appendix B; nothing that is computed again counts.
    """
    attention = 12 * workload.layers * workload.hidden * workload.sequence_length
    return (6 * workload.num_parameters() + attention) * workload.tokens
