"""The GPUs of hosts: whether systems have one, and the memory that they give to activations.

The systems of a host take its GPUs in turn (csnode.devices.cuda). Actors ask Ray for no GPU, since
Ray would give one to an actor alone; Ray 2.60 hides no GPU from an actor that asks for none.
"""

from __future__ import annotations

from typing import Literal

from appliance.placement.placer import Placement
from appliance.spec import RuntimeSpec
from csnode.devices import DeviceName
from csnode.devices.cuda import memory_of_gpus, num_gpus
from waferstream.core.errors import ClusterJobInitError

MOST_PER_GPU = 8
"""Systems that may share a GPU: each has a process, whose CUDA context takes memory there (about
half a GB)."""


def check_gpus(device: DeviceName, num_systems: int) -> None:
    """Check that this host has the GPUs for its systems.

    Raises:
        ClusterJobInitError: It has none, or too few.
    """
    if device == "cuda":
        _check("this host", num_systems, num_gpus())


def check_gpus_of_hosts(device: DeviceName, placement: Placement) -> None:
    """Check that each host of a placement has the GPUs for its systems, as far as it is known.

    Raises:
        ClusterJobInitError: A host has none, or too few.
    """
    if device == "cuda":
        for host, systems in zip(placement.hosts, placement.systems, strict=True):
            if systems and host.gpus is not None:
                _check(f"host {host.address}", len(systems), host.gpus)


def bytes_of_activations(runtime: RuntimeSpec, num_systems: int) -> int | Literal["auto"]:
    """Return the bytes of a host that activations may take: half of its GPUs where they are there.

    ``auto`` is left to the memory of the host.
    """
    if runtime.device == "cpu" or runtime.activation_memory != "auto":
        return runtime.activation_memory
    return sum(memory_of_gpus()[:num_systems]) // 2


def _check(where: str, num_systems: int, gpus: int) -> None:
    if num_systems > gpus * MOST_PER_GPU:
        raise ClusterJobInitError(
            "systems with runtime.device: cuda must have a GPU",
            code="too-few-gpus",
            where=where,
            value=f"{num_systems} systems, {gpus} GPUs",
            rule=f"torch sees a GPU for every {MOST_PER_GPU} systems of a host",
            remedy="lower num_csx, install a torch with CUDA, or set runtime.device: cpu",
        )
