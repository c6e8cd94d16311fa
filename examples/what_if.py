"""Vary the tree and the links of a machine, and see what a training step takes.

python examples/what_if.py
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import cstorch
from appliance.spec import ClusterSpec
from waferstream.core.units import PS_PER_MS

NUM_CSX = 16

MACHINES: dict[str, dict[str, Any]] = {
    "as published": {},
    "tree of fan-out 2": {"swarmx": {"fan_out": 2}},
    "links 10 times slower": {"swarmx": {"link_bandwidth_bytes_per_s": 15_000_000_000}},
    "links 100 times slower": {"swarmx": {"link_bandwidth_bytes_per_s": 1_500_000_000}},
    "hops 1000 times slower": {"swarmx": {"hop_latency_ps": 5_000_000_000}},
    "one system twice as slow": {"jitter": {"stragglers": {"csx-3": 2.0}}},
}


def model_and_batch() -> tuple[nn.Module, tuple[torch.Tensor, torch.Tensor]]:
    """Return a wide network and a batch, both without memory."""
    with torch.device("meta"):
        layers = [layer for _ in range(8) for layer in (nn.Linear(4_096, 4_096), nn.GELU())]
        batch = torch.empty(4_096, 4_096)
        return nn.Sequential(*layers), (batch, batch)


def step_times(num_csx: int = NUM_CSX) -> dict[str, float]:
    """Return milliseconds of a step on each machine."""
    found = {}
    for name, machine in MACHINES.items():
        model, batch = model_and_batch()
        cluster = ClusterSpec.model_validate({"machine": machine})
        simulation = cstorch.simulate(
            model, batch, num_csx, loss_fn=nn.functional.mse_loss, cluster=cluster
        )
        found[name] = simulation.points[-1].emulated.step_ps / PS_PER_MS
    return found


if __name__ == "__main__":
    times = step_times()
    for name, milliseconds in times.items():
        print(f"{name:26} {milliseconds:10.3f} ms  x {milliseconds / times['as published']:.2f}")
