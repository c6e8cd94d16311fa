"""Times around the steps: compiling, sending initial weights, saving checkpoints.

Bytes over bandwidth plus a fixed time, each constant from one calibration row. Two runs of the
same job differ as much as the model errs: 13.2 to 20.5 s for the same initial weights (T0092),
464 to 584 s for the same checkpoint (T0098), of which the rows state the shortest. The site guide's
"60 s per billion parameters" of a checkpoint are 200 MB/s. See timing.start_up for the model.
"""

from __future__ import annotations

from pydantic import NonNegativeInt, PositiveInt

from waferstream.core.config import Config
from waferstream.core.units import PS_PER_MS, PS_PER_S
from waferstream.machine.hardware.sourced import sourced


class StartUpSpec(Config):
    """The user node and its connection to MemoryX."""

    compile_ps: NonNegativeInt = sourced(
        120 * PS_PER_S, "assumed", "per job; the site guide says minutes to an hour"
    )
    compile_segment_ps: NonNegativeInt = sourced(
        10 * PS_PER_S, "assumed", "per segment; 24 layers take 10 minutes, 96 half an hour"
    )
    transfer_start_ps: NonNegativeInt = sourced(
        2_300 * PS_PER_MS,
        "assumed",
        "a process that sends imports PyTorch first, 2.3 s of CPU time",
    )
    transfer_bandwidth_bytes_per_s: PositiveInt = sourced(
        2_473_394_495, "fitted", "T0092: 6.74 B fp32 weights, less transfer_start_ps"
    )
    storage_bandwidth_bytes_per_s: PositiveInt = sourced(
        174_310_345, "fitted", "T0098: 6.74 B fp32 masters with two moments, one writer of HDF5"
    )
