"""What public configuration files state of models whose rows name little more than their size."""

from __future__ import annotations

from dataclasses import dataclass

from baselines.gpu import Recompute


@dataclass(frozen=True)
class GenSlm:
    """GenSLM: ramanathanlab/genslm, ``genslm/architectures/neox`` and ``examples/training``."""

    feed_forward: int
    micro_batch: int
    recompute: Recompute = "none"
    optimizer_threads: int = 0
    """``num_data_workers``, which its code makes the number of threads, if it is to offload."""


GENSLM = {
    "25M": GenSlm(2048, micro_batch=8),
    "250M": GenSlm(2048, micro_batch=8),
    "2.5B": GenSlm(4096, micro_batch=1),
    "25B": GenSlm(8000, micro_batch=1, recompute="full", optimizer_threads=4),
}
"""The file of 250M puts the optimizer on the host, too. Calibration rows exclude that for the runs
that are predicted: 8 GPUs would take a sixth longer than 128, communication aside, and do not."""


@dataclass(frozen=True)
class Pythia:
    """Pythia: EleutherAI/pythia, ``models``; with ZeRO-1 and layers recomputed."""

    parameters: int
    hidden: int
    layers: int
    heads: int
    micro_batch: int
    tensor: int = 1


PYTHIA = {
    "70M": Pythia(70_426_624, 512, 6, 8, micro_batch=32),
    "160M": Pythia(162_322_944, 768, 12, 12, micro_batch=32),
    "410M": Pythia(405_334_016, 1024, 24, 16, micro_batch=32),
    "1B": Pythia(1_011_781_632, 2048, 16, 8, micro_batch=16),
    "1.4B": Pythia(1_414_647_808, 2048, 24, 16, micro_batch=16),
    "2.8B": Pythia(2_775_208_960, 2560, 32, 32, micro_batch=16),
    "6.9B": Pythia(6_857_302_016, 4096, 32, 32, micro_batch=8, tensor=2),
    "12B": Pythia(11_846_072_320, 5120, 36, 40, micro_batch=8, tensor=4),
}
PYTHIA_BATCH = 1024
PYTHIA_STEPS = 143_000
