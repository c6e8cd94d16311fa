"""From a row to the run that it describes: who trained what, on which GPUs, with which software.

A cell that a row leaves empty is taken from the public configuration of that benchmark, named
below and in ``gpu_models``; where there is none, or where it cannot have been run as it stands, the
row cannot be replayed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from benchmarks.fidelity.cells import Known, choice, count
from benchmarks.fidelity.gpu_models import GENSLM, PYTHIA, PYTHIA_BATCH
from benchmarks.fidelity.replay import CannotReplay
from benchmarks.fidelity.rows import Row
from wsc.timing.gpu import (
    A100_40,
    A100_80,
    AUTOCAST_DDP,
    DEEPSPEED,
    FSDP,
    GPT_NEOX,
    H100,
    H100_500W,
    H200,
    MEGATRON,
    TORCHTITAN,
    TORCHTITAN_EAGER,
    FastNetwork,
    GpuClusterSpec,
    GpuSpec,
    NetworkSpec,
    Parallelism,
    Sharding,
    SlowNetwork,
    SoftwareSpec,
    Workload,
    training_memory,
)

_KNOWN_GPUS = ("a100", "h100", "h200")


@dataclass(frozen=True)
class GpuRun:
    """A training run on a GPU cluster."""

    workload: Workload
    parallelism: Parallelism
    gpus: int
    cluster: GpuClusterSpec
    software: SoftwareSpec


def gpu_run(row: Row) -> GpuRun:
    """The run of a training row; CannotReplay if neither row nor configuration tell enough."""
    if not row.text("gpu").lower().startswith(_KNOWN_GPUS):
        raise CannotReplay(f"no numbers for a {row.text('gpu')}")
    for cluster, build in _BUILDERS.items():
        if row.text("cluster").startswith(cluster):
            return build(row)
    raise CannotReplay(f"no calibration row of the cluster {row.text('cluster')}")


def _foundry(row: Row) -> GpuRun:
    """LLM Foundry: MPT with a vocabulary of 50,368, tied embeddings and learned positions."""
    gpus: dict[str, tuple[GpuSpec, NetworkSpec]] = {
        "h100_80gb": (H100, FastNetwork()),
        "a100_80gb": (A100_80, NetworkSpec()),
        "a100_40gb": (A100_40, NetworkSpec()),
    }
    shardings: dict[str, Sharding] = {"FSDP FULL_SHARD": "zero3", "FSDP SHARD_GRAD_OP": "zero2"}
    gpu, network = choice(row, "gpu", gpus)
    return GpuRun(
        replace(_decoder(row, vocab=50_368), tied_embeddings=True, learned_positions=True),
        Parallelism(
            sharding=choice(row, "parallelism", shardings),
            micro_batch=count(row, "microbatch"),
            micro_batches=count(row, "grad_accum"),
            recompute="full" if row.text("act_ckpt") == "True" else "none",
            float8="fp8" in row.text("dtype"),
        ),
        count(row, "n_gpus"),
        _cluster(row, gpu, network),
        FSDP,
    )


def _selene(row: Row) -> GpuRun:
    return _genslm(row, A100_80, NetworkSpec())


def _polaris(row: Row) -> GpuRun:
    """The largest model alone, whose configuration file is of a run on Polaris."""
    if not row.text("workload").endswith("25B"):
        _unstated(row)
    return _genslm(row, A100_40, SlowNetwork())


def _genslm(row: Row, gpu: GpuSpec, network: NetworkSpec) -> GpuRun:
    """GenSLM: 69 codons; ZeRO-3 unless said otherwise, and with DDP everything on the GPU."""
    shardings: dict[str, Sharding] = {
        "ZeRO-3": "zero3",
        "ZeRO-2": "zero2",
        "DDP": "ddp",
        "DeepSpeed (stage not stated)": "zero3",
    }
    sharding = choice(row, "parallelism", shardings)
    model = _configured(row, "GenSLM GPT-NeoX ", GENSLM)
    return _as_configured(
        GpuRun(
            replace(_decoder(row, vocab=69), feed_forward=model.feed_forward),
            Parallelism(
                sharding,
                micro_batch=model.micro_batch,
                recompute=model.recompute,
                optimizer_threads=0 if sharding == "ddp" else model.optimizer_threads,
            ),
            count(row, "n_gpus"),
            _cluster(row, gpu, network),
            AUTOCAST_DDP if sharding == "ddp" else DEEPSPEED,
        )
    )


def _torchtitan(row: Row) -> GpuRun:
    """TorchTitan: Llama 3 with heads of 128; 8B recomputes selectively, larger ones in full.

    Eager where neither torch.compile nor tensor parallelism is named. A pipeline gets as many
    micro-batches as it has stages, and overlaps tensor-parallel communication.
    """
    text, dtype = row.text("parallelism"), row.text("dtype")
    if "rowwise" in dtype:
        raise CannotReplay("no calibration row of float8 with scales per row")
    if re.search(r"\bCP\d", text):
        raise CannotReplay("context parallelism is not modelled")
    tensor, pipeline = _degree(text, "TP"), _degree(text, "PP")
    workload = _decoder(row, vocab=128_256, head_size=128)
    local_batch = count(row, "microbatch")
    gpu = H200 if row.text("gpu") == "H200" else H100_500W
    return GpuRun(
        workload,
        Parallelism(
            "zero3",
            tensor=tensor,
            pipeline=pipeline,
            micro_batch=max(1, local_batch // pipeline),
            micro_batches=pipeline,
            virtual_stages=2 if "interleaved" in text.lower() else 1,
            recompute="selective" if workload.parameters < 1e10 else "full",
            float8="float8" in dtype,
            overlap_tensor="async" in text.lower() or pipeline > 1,
        ),
        count(row, "n_gpus"),
        _cluster(row, gpu, FastNetwork()),
        TORCHTITAN if "compile" in text or tensor > 1 else TORCHTITAN_EAGER,
    )


def _megatron(row: Row) -> GpuRun:
    """Megatron-Core: GPT-3 with a vocabulary of 131,072, split as NVIDIA's configurations do."""
    if "GPT-3" not in row.text("workload"):
        raise CannotReplay("shape of the model, batch and degrees of parallelism are not stated")
    gpus, tensor, pipeline = count(row, "n_gpus"), 4, 8
    ranks, rest = divmod(gpus, tensor * pipeline)
    if ranks == 0 or rest:
        raise CannotReplay(f"{gpus} GPUs are not divided by {tensor} x {pipeline}")
    return GpuRun(
        Workload(count(row, "model_params"), 12_288, 96, 96, 2048, vocab=131_072),
        Parallelism(
            "zero1",
            tensor=tensor,
            pipeline=pipeline,
            micro_batches=count(row, "global_batch") // ranks,
            virtual_stages=6,
            overlap_tensor=True,
        ),
        gpus,
        _cluster(row, H100, FastNetwork()),
        MEGATRON,
    )


def _pythia(row: Row) -> GpuRun:
    """Pythia: GPT-NeoX with fused attention on AWS, where its configuration has its data (/fsx).

    There is no calibration row, so that nothing of it is fitted.
    """
    model, gpus = _configured(row, "Pythia ", PYTHIA), count(row, "n_gpus")
    samples = gpus // model.tensor * model.micro_batch
    return _as_configured(
        GpuRun(
            Workload(
                model.parameters,
                model.hidden,
                model.layers,
                model.heads,
                seq_len=2048,
                vocab=50_304,
                parallel_blocks=True,
            ),
            Parallelism(
                "zero1",
                tensor=model.tensor,
                micro_batch=model.micro_batch,
                micro_batches=max(1, PYTHIA_BATCH // samples),
                recompute="full",
            ),
            gpus,
            _cluster(row, A100_40, SlowNetwork()),
            GPT_NEOX,
        )
    )


def _unstated(row: Row) -> NoReturn:
    """GenSLM of August 2022: its code fixes ZeRO-3 without offloading, configurations differ."""
    raise CannotReplay(
        "the micro-batch is not stated, public configurations give two, and there is no calibration"
        f" row of {row.text('cluster')}"
    )


def _as_configured(run: GpuRun) -> GpuRun:
    """The run, if what its row leaves to the configuration can have been as the configuration says.

    Where that does not fit the memory, something else was done, and nothing says what.
    """
    memory = training_memory(run.workload, run.parallelism, run.gpus, run.software)
    if not memory.fits(run.cluster.gpu):
        raise CannotReplay(
            "the micro-batch is not stated, and that of the configuration does not fit the memory:"
            " what was done instead is unknown"
        )
    return run


_BUILDERS: Mapping[str, Callable[[Row], GpuRun]] = {
    "MosaicML": _foundry,
    "Selene": _selene,
    "Meta": _torchtitan,
    "WhiteFiber": _torchtitan,
    "NVIDIA": _megatron,
    "EleutherAI": _pythia,
    "Polaris": _polaris,
    "Perlmutter": _unstated,
}


def _decoder(row: Row, vocab: int, head_size: int | None = None) -> Workload:
    hidden = count(row, "hidden")
    heads = hidden // head_size if head_size else count(row, "heads")
    return Workload(
        parameters=count(row, "model_params"),
        hidden=hidden,
        layers=count(row, "layers"),
        heads=heads,
        seq_len=count(row, "seq_len"),
        vocab=vocab,
    )


def _cluster(row: Row, gpu: GpuSpec, network: NetworkSpec) -> GpuClusterSpec:
    return GpuClusterSpec(gpu=gpu, gpus_per_node=count(row, "gpus_per_node"), network=network)


def _configured(row: Row, family: str, models: Mapping[str, Known]) -> Known:
    name = row.text("workload")
    if name.removeprefix(family) not in models:
        raise CannotReplay(f"no configuration of {name}")
    return models[name.removeprefix(family)]


def _degree(text: str, kind: str) -> int:
    found = re.search(rf"\b{kind}(\d+)", text)
    return int(found.group(1)) if found else 1
