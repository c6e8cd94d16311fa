"""Interpret rows of gpu_training.csv, with the public configurations of models that rows name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from validation.rows.row import CannotPredict, Known, Row, letters_of
from waferstream.baselines.gpu.chips import A100_40, A100_80, B200, H100, H100_500W, H200
from waferstream.baselines.gpu.hardware import GpuSpec
from waferstream.baselines.gpu.workload import Recompute
from waferstream.machine.regions.decoder import Decoder

_GPUS = {
    "a10080gb": A100_80,
    "a10040gb": A100_40,
    "h10096gb": H100_500W,
    "h100": H100,
    "h200": H200,
    "b200": B200,
}
"""GPUs by the first letters of their names; a longer name precedes a shorter one."""

_RECOMPUTES: dict[str, Recompute] = {
    "True": "full",
    "full": "full",
    "selective": "selective",
    "selective op": "selective",
    "selective layer": "selective",
    "False": "none",
    "none": "none",
    "no": "none",
}

_MULTIPLES = {"M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True)
class GenSlm:
    """GenSLM: ramanathanlab/genslm, ``genslm/architectures/neox`` and ``examples/training``."""

    feed_forward: int
    micro_batch: int
    recompute: Recompute = "none"
    optimizer_threads: int = 0
    """Threads of an offloaded optimizer: the code uses ``num_data_workers``."""


GENSLM = {
    "25M": GenSlm(2048, micro_batch=8),
    "250M": GenSlm(2048, micro_batch=8),
    "2.5B": GenSlm(4096, micro_batch=1, optimizer_threads=16),
    "25B": GenSlm(8000, micro_batch=1, recompute="full", optimizer_threads=4),
}
"""Configurations by model size.

The file of 250M offloads the optimizer to the host, too. Calibration rows exclude that for the
predicted runs: apart from communication, 8 GPUs would take a sixth longer than 128, but do not.
That of 2.5B has no key for it, since it is older than the key; the code of its time was edited from
run to run. Its time falls as 1/N, as with the 16 threads of its ``num_data_workers``.
"""


@dataclass(frozen=True)
class Pythia:
    """Pythia: EleutherAI/pythia, ``models``; with ZeRO-1 and recomputed layers."""

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

_GPT3_VOCABULARY = 51_200
_NEMOTRON_VOCABULARY = 256_000
MEGATRON_MODELS = {
    "GPT3-5B": Decoder(4096, 16_384, 24, 4096, is_gated=False, vocabulary=_GPT3_VOCABULARY),
    "GPT3-20B": Decoder(6144, 24_576, 44, 6144, is_gated=False, vocabulary=_GPT3_VOCABULARY),
    "GPT3-175B": Decoder(12_288, 49_152, 96, 12_288, is_gated=False, vocabulary=_GPT3_VOCABULARY),
    "Nemotron-8B": Decoder(4096, 16_384, 32, 4096, is_gated=False, vocabulary=_NEMOTRON_VOCABULARY),
    "Nemotron-15B": Decoder(
        6144, 24_576, 32, 1024, is_gated=False, vocabulary=_NEMOTRON_VOCABULARY
    ),
    "Nemotron-22B": Decoder(
        6144, 24_576, 40, 6144, is_gated=False, vocabulary=_NEMOTRON_VOCABULARY
    ),
    "Nemotron-340B": Decoder(
        18_432, 73_728, 96, 1536, is_gated=False, vocabulary=_NEMOTRON_VOCABULARY
    ),
}
"""Shapes of NVIDIA's models by the names of its tables of performance: NVIDIA/NeMo, configurations
of GPT-3 and Nemotron. Those of LLaMA are in ``waferstream.machine.regions``."""
PYTHIA_STEPS = 143_000


def gpu_of(row: Row) -> GpuSpec:
    """Return the GPU of a row; CannotPredict if its numbers are unknown."""
    letters = letters_of(row.text("gpu"))
    for name, gpu in _GPUS.items():
        if letters.startswith(name):
            return gpu
    raise CannotPredict(f"no numbers for a {row.text('gpu')}", code="gpu-unknown")


def parameters_of(row: Row) -> int:
    """Return the model's number of parameters, written as a number or as ``1.4B``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([MBT])", row.text("model_params"))
    return round(float(found[1]) * _MULTIPLES[found[2]]) if found else row.count("model_params")


def recompute_of(row: Row, default: Recompute | None = None, stops: bool = False) -> Recompute:
    """Return the recomputation of the backward pass; ``default`` is the software's own choice.

    ``stops`` tells of a PyTorch since 2.1, which recomputes a layer only as far as is needed.
    """
    if default is not None and not row.text("act_ckpt"):
        return default
    recompute = row.choice("act_ckpt", _RECOMPUTES)
    return "needed" if stops and recompute == "full" else recompute


def is_float8(row: Row) -> bool:
    """Return whether products run in 8 bit; CannotPredict unless scales are per tensor."""
    words = f"{row.text('dtype')} {row.text('parallelism')}".lower()
    if any(scales in words for scales in ("rowwise", "blockwise", "mxfp8")):
        raise CannotPredict(
            "no calibration row of float8 with scales per row or block", code="float8-scales"
        )
    return "float8" in words or "fp8" in words


def degree_of(row: Row, kind: str) -> int:
    """Return the degree of one kind of parallelism: ``TP8``, ``TP 8`` or ``tp=8``."""
    found = re.search(rf"\b{kind}\s*=?\s*(\d+)", row.text("parallelism"), re.IGNORECASE)
    return int(found[1]) if found else 1


def batch_of(row: Row) -> int:
    """Return the sequences in a step, from their column or from the words of the workload."""
    stated = re.search(r"\bbatch (\d+)\b", row.text("workload"))
    return row.integer("global_batch") or (int(stated[1]) if stated else row.count("global_batch"))


def configured(row: Row, family: str, models: Mapping[str, Known]) -> Known:
    """Return the public configuration of a row's model by its size: ``1.4B``.

    Raises:
        CannotPredict: The model belongs to another family, or its size has no configuration.
    """
    name = row.text("workload")
    found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?[MB])\b", name.replace("-", " "))
    is_family = letters_of(family) in letters_of(name)
    if found is None or not is_family or found[1] not in models:
        raise CannotPredict(f"no configuration of {name}", code="model-without-configuration")
    return models[found[1]]
