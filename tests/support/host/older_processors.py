"""Processors that compute other bits than this one, played by kernels for older instructions."""

from __future__ import annotations

import pytest
import torch

needs_other_kernels = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="torch has no other kernels here"
)


def older_kernels() -> dict[str, str]:
    """Return the variables that choose kernels for older processors.

    They are of MKL where the processor has AMX: without AVX-512, torch's attention in bf16 fails.
    """
    if torch.cpu._is_amx_tile_supported():
        return {"MKL_CBWR": "COMPATIBLE"}
    return {"ATEN_CPU_CAPABILITY": "default"}
