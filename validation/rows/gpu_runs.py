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

from baselines.gpu import (
    AUTOCAST_DDP,
    DEEPSPEED,
    FSDP,
    GPT_NEOX,
    H100,
    H200,
    HOST,
    MEGATRON,
    NETWORK_50G,
    NETWORK_200G,
    NETWORK_400G,
    TORCHTITAN,
    TORCHTITAN_EAGER,
    GpuClusterSpec,
    NetworkSpec,
    Parallelism,
    Sharding,
    SoftwareSpec,
    Workload,
    training_memory,
)
from validation.families.replay import CannotReplay
from validation.rows.cells import Known, choice, count
from validation.rows.gpu_cells import (
    degree_of,
    gpu_of,
    is_float8,
    parameters_of,
    recompute_of,
    size_of,
)
from validation.rows.gpu_models import GENSLM, PYTHIA, PYTHIA_BATCH
from validation.rows.row import Row


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
    gpu_of(row)
    if "32" in row.text("dtype"):
        raise CannotReplay("only training in 16 and 8 bit is modelled")
    for cluster, build in _BUILDERS.items():
        if row.text("cluster").startswith(cluster):
            return build(row)
    raise CannotReplay(f"no calibration row of the cluster {row.text('cluster')}")


def _foundry(row: Row) -> GpuRun:
    """LLM Foundry: MPT with a vocabulary of 50,368, tied embeddings and learned positions."""
    shardings: dict[str, Sharding] = {"FSDP FULL_SHARD": "zero3", "FSDP SHARD_GRAD_OP": "zero2"}
    network = NETWORK_400G if gpu_of(row) in (H100, H200) else NETWORK_200G
    return GpuRun(
        replace(_decoder(row, vocab=50_368), tied_embeddings=True, learned_positions=True),
        Parallelism(
            sharding=choice(row, "parallelism", shardings),
            micro_batch=count(row, "microbatch"),
            micro_batches=count(row, "grad_accum"),
            recompute=recompute_of(row),
            float8=is_float8(row),
        ),
        count(row, "n_gpus"),
        _cluster(row, network),
        FSDP,
    )


def _selene(row: Row) -> GpuRun:
    return _genslm(row, NETWORK_200G)


def _polaris(row: Row) -> GpuRun:
    """The largest model alone, whose configuration file is of a run on Polaris."""
    if not row.text("workload").endswith("25B"):
        _unstated(row)
    return _genslm(row, NETWORK_50G)


def _genslm(row: Row, network: NetworkSpec) -> GpuRun:
    """GenSLM: 69 codons; ZeRO-3 unless said otherwise, and with DDP everything on the GPU."""
    shardings: dict[str, Sharding] = {
        "ZeRO-3": "zero3",
        "ZeRO-2": "zero2",
        "ZeRO-1": "zero1",
        "DDP": "ddp",
        "DeepSpeed (stage not stated)": "zero3",
    }
    sharding = choice(row, "parallelism", shardings)
    model = _configured(row, "GenSLM GPT-NeoX", GENSLM)
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
            _cluster(row, network),
            AUTOCAST_DDP if sharding == "ddp" else DEEPSPEED,
        )
    )


def _torchtitan(row: Row) -> GpuRun:
    """TorchTitan: Llama 3 with heads of 128; 8B recomputes selectively, larger ones in full.

    Eager where neither torch.compile nor tensor parallelism is named. A pipeline gets as many
    micro-batches as it has stages, and overlaps tensor-parallel communication.
    """
    text, float8 = row.text("parallelism").lower(), is_float8(row)
    if degree_of(row, "CP") > 1:
        raise CannotReplay("context parallelism is not modelled")
    if not text.startswith("fsdp"):
        raise CannotReplay(f"no model of parallelism {row.text('parallelism')!r}")
    tensor, pipeline = degree_of(row, "TP"), degree_of(row, "PP")
    workload = _decoder(row, vocab=128_256, head_size=128)
    local_batch = count(row, "microbatch")
    return GpuRun(
        workload,
        Parallelism(
            "zero3",
            tensor=tensor,
            pipeline=pipeline,
            micro_batch=max(1, local_batch // pipeline),
            micro_batches=pipeline,
            virtual_stages=2 if "interleaved" in text else 1,
            recompute=recompute_of(row, "selective" if workload.parameters < 1e10 else "full"),
            float8=float8,
            overlap_tensor="async" in text or pipeline > 1,
        ),
        count(row, "n_gpus"),
        _cluster(row, NETWORK_400G),
        TORCHTITAN if "compile" in text or tensor > 1 else TORCHTITAN_EAGER,
    )


def _megatron(row: Row) -> GpuRun:
    """Megatron-Core: GPT-3 with a vocabulary of 131,072, split as NVIDIA's configurations do."""
    if "GPT-3" not in row.text("workload"):
        raise CannotReplay("shape of the model, batch and degrees of parallelism are not stated")
    if gpu_of(row) != H100:
        raise CannotReplay(f"no calibration row of Megatron on a {row.text('gpu')}")
    gpus, tensor, pipeline = count(row, "n_gpus"), 4, 8
    ranks, rest = divmod(gpus, tensor * pipeline)
    if ranks == 0 or rest:
        raise CannotReplay(f"{gpus} GPUs are not divided by {tensor} x {pipeline}")
    return GpuRun(
        Workload(parameters_of(row), 12_288, 96, 96, 2048, vocab=131_072),
        Parallelism(
            "zero1",
            tensor=tensor,
            pipeline=pipeline,
            micro_batches=_batch(row) // ranks,
            virtual_stages=6,
            overlap_tensor=True,
        ),
        gpus,
        _cluster(row, NETWORK_400G),
        MEGATRON,
    )


def _pythia(row: Row) -> GpuRun:
    """Pythia: GPT-NeoX with fused attention on AWS, where its configuration has its data (/fsx).

    There is no calibration row, so that nothing of it is fitted.
    """
    model, gpus = _configured(row, "Pythia", PYTHIA), count(row, "n_gpus")
    if gpus % model.tensor:
        raise CannotReplay(f"{gpus} GPUs are not divided by {model.tensor}")
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
            _cluster(row, NETWORK_50G),
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
        parameters=parameters_of(row),
        hidden=hidden,
        layers=count(row, "layers"),
        heads=heads,
        seq_len=count(row, "seq_len"),
        vocab=vocab,
    )


def _batch(row: Row) -> int:
    """Sequences of a step, from their column or, as some do, from the words of the workload."""
    stated = re.search(r"\bbatch (\d+)\b", row.text("workload"))
    return row.integer("global_batch") or (int(stated[1]) if stated else count(row, "global_batch"))


def _cluster(row: Row, network: NetworkSpec) -> GpuClusterSpec:
    return GpuClusterSpec(
        gpu=gpu_of(row), gpus_per_node=count(row, "gpus_per_node"), network=network, host=HOST
    )


def _configured(row: Row, family: str, models: Mapping[str, Known]) -> Known:
    size = size_of(row, family)
    if size not in models:
        raise CannotReplay(f"no configuration of {row.text('workload')}")
    return models[size]
