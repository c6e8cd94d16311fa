"""Convert GPU training rows to runs: workload, parallelism, cluster, software stack.

An empty column is filled from the public configuration of that benchmark, named below and in
``rows.gpu``. A row without such a configuration, or whose configuration cannot have run unchanged,
is not predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from validation.rows.decoders import named_decoder
from validation.rows.gpu import (
    GENSLM,
    MEGATRON_MODELS,
    PYTHIA,
    PYTHIA_BATCH,
    batch_of,
    configured,
    degree_of,
    gpu_of,
    is_float8,
    parameters_of,
    recompute_of,
)
from validation.rows.row import CannotPredict, Row
from waferstream.baselines.gpu.chips import H100, H200
from waferstream.baselines.gpu.clusters import HOST, NETWORK_50G, NETWORK_200G, NETWORK_400G
from waferstream.baselines.gpu.curve import training_memory
from waferstream.baselines.gpu.hardware import GpuClusterSpec, NetworkSpec
from waferstream.baselines.gpu.software import (
    AUTOCAST_DDP,
    DEEPSPEED,
    FSDP,
    GPT_NEOX,
    GPT_NEOX_TENSOR,
    MEGATRON,
    TORCHTITAN,
    TORCHTITAN_EAGER,
    TORCHTITAN_TENSOR,
    SoftwareSpec,
)
from waferstream.baselines.gpu.workload import Parallelism, Sharding, Workload


@dataclass(frozen=True)
class GpuRun:
    """A training run on a GPU cluster."""

    workload: Workload
    parallelism: Parallelism
    gpus: int
    cluster: GpuClusterSpec
    software: SoftwareSpec


def gpu_run(row: Row) -> GpuRun:
    """Return the run of a training row.

    Raises CannotPredict if row and public configuration do not state the whole run.
    """
    gpu_of(row)
    if "32" in row.text("dtype"):
        raise CannotPredict("only training in 16 and 8 bit is modelled", code="training-dtype")
    for cluster, build in _BUILDERS.items():
        if row.text("cluster").startswith(cluster):
            return build(row)
    raise CannotPredict(
        f"no calibration row of the cluster {row.text('cluster')}", code="no-calibration-row"
    )


def _foundry(row: Row) -> GpuRun:
    """Return a run of LLM Foundry: MPT, vocabulary 50,368, tied embeddings, learned positions.

    Rows of amp are of October 2023 and later, with PyTorch 2.1; others of May 2023.
    """
    shardings: dict[str, Sharding] = {"FSDP FULL_SHARD": "zero3", "FSDP SHARD_GRAD_OP": "zero2"}
    network = NETWORK_400G if gpu_of(row) in (H100, H200) else NETWORK_200G
    return GpuRun(
        replace(_decoder(row, vocab=50_368), tied_embeddings=True, learned_positions=True),
        Parallelism(
            sharding=row.choice("parallelism", shardings),
            micro_batch=row.count("microbatch"),
            micro_batches=row.count("grad_accum"),
            recompute=recompute_of(row, stops="amp" in row.text("dtype")),
            float8=is_float8(row),
        ),
        row.count("n_gpus"),
        _cluster(row, network),
        FSDP,
    )


def _selene(row: Row) -> GpuRun:
    """Return a run of GenSLM on Selene."""
    return _genslm(row, NETWORK_200G)


def _polaris(row: Row) -> GpuRun:
    """Return a run of GenSLM on Polaris: 25B, the only model with a configuration from there."""
    if not row.text("workload").endswith("25B"):
        _unstated(row)
    return _genslm(row, NETWORK_50G)


def _genslm(row: Row, network: NetworkSpec) -> GpuRun:
    """Return a run of GenSLM: 69 codons, ZeRO-3 by default; DDP keeps the optimizer on the GPU."""
    shardings: dict[str, Sharding] = {
        "ZeRO-3": "zero3",
        "ZeRO-2": "zero2",
        "ZeRO-1": "zero1",
        "DDP": "ddp",
        "DeepSpeed (stage not stated)": "zero3",
    }
    sharding = row.choice("parallelism", shardings)
    model = configured(row, "GenSLM GPT-NeoX", GENSLM)
    return _as_configured(
        GpuRun(
            replace(_decoder(row, vocab=69), feed_forward=model.feed_forward),
            Parallelism(
                sharding,
                micro_batch=model.micro_batch,
                recompute=model.recompute,
                optimizer_threads=0 if sharding == "ddp" else model.optimizer_threads,
            ),
            row.count("n_gpus"),
            _cluster(row, network),
            AUTOCAST_DDP if sharding == "ddp" else DEEPSPEED,
        )
    )


def _torchtitan(row: Row) -> GpuRun:
    """Return a run of TorchTitan: Llama 3, heads of 128; 8B recomputes selectively, others in full.

    Compiled where torch.compile is named, or tensor parallelism, which makes products smaller. A
    pipeline gets as many micro-batches as it has stages, and overlaps what its tensor parallelism
    sends.
    """
    text, float8 = row.text("parallelism").lower(), is_float8(row)
    if not text.startswith("fsdp"):
        raise CannotPredict(
            f"no model of parallelism {row.text('parallelism')!r}", code="column-value-unknown"
        )
    tensor, pipeline, context = (degree_of(row, kind) for kind in ("TP", "PP", "CP"))
    vocab = 32_000 if "Llama 2" in row.text("workload") else 128_256
    workload = _decoder(row, vocab, head_size=128)
    local_batch = row.count("microbatch")
    return GpuRun(
        workload,
        Parallelism(
            "zero3",
            tensor=tensor,
            pipeline=pipeline,
            context=context,
            micro_batch=max(1, local_batch // pipeline),
            micro_batches=pipeline,
            virtual_stages=2 if "interleaved" in text else 1,
            recompute=recompute_of(
                row, "selective" if workload.parameters < 1e10 else "needed", stops=True
            ),
            float8=float8,
            overlap_tensor="async" in text or pipeline > 1,
        ),
        row.count("n_gpus"),
        _cluster(row, NETWORK_200G if row.text("gpu").startswith("A100") else NETWORK_400G),
        TORCHTITAN_TENSOR
        if tensor > 1
        else (TORCHTITAN if "compile" in text else TORCHTITAN_EAGER),
    )


def _megatron(row: Row) -> GpuRun:
    """Return a run of Megatron-Core: GPT-3, vocabulary 131,072, split as NVIDIA configures it."""
    if "GPT-3" not in row.text("workload"):
        raise CannotPredict(
            "shape of the model, batch and degrees of parallelism are not stated",
            code="run-not-stated",
        )
    if gpu_of(row) != H100:
        raise CannotPredict(
            f"no calibration row of Megatron on a {row.text('gpu')}", code="no-calibration-row"
        )
    gpus, tensor, pipeline = row.count("n_gpus"), 4, 8
    ranks, rest = divmod(gpus, tensor * pipeline)
    if ranks == 0 or rest:
        raise CannotPredict(
            f"the number of GPUs must be a multiple of {tensor} x {pipeline}; got {gpus}",
            code="gpus-not-divisible",
        )
    return GpuRun(
        Workload(parameters_of(row), 12_288, 96, 96, 2048, vocab=131_072),
        Parallelism(
            "zero1",
            tensor=tensor,
            pipeline=pipeline,
            micro_batches=batch_of(row) // ranks,
            virtual_stages=6,
            overlap_tensor=True,
        ),
        gpus,
        _cluster(row, NETWORK_400G),
        MEGATRON,
    )


def _nemo(row: Row) -> GpuRun:
    """Return a run of NeMo with Megatron-Core, nothing recomputed; a DDP shards its optimizer."""
    decoder = MEGATRON_MODELS.get(row.text("workload")) or named_decoder(row)
    tensor, pipeline, context = (degree_of(row, kind) for kind in ("TP", "PP", "CP"))
    gpus, micro_batch = row.count("n_gpus"), row.count("microbatch")
    samples = gpus // (tensor * pipeline * context) * micro_batch
    tied = row.text("workload").startswith("GPT3")
    embeddings = (1 if tied else 2) * decoder.vocabulary * decoder.dim
    return GpuRun(
        Workload(
            decoder.active_weights + embeddings,
            decoder.dim,
            decoder.layers,
            decoder.dim // 128,
            row.count("seq_len"),
            decoder.vocabulary,
            tied_embeddings=tied,
            feed_forward=decoder.ffn,
        ),
        Parallelism(
            "zero3" if "FSDP" in row.text("parallelism") else "zero1",
            tensor,
            pipeline,
            micro_batch,
            micro_batches=max(1, batch_of(row) // samples),
            virtual_stages=degree_of(row, "VP"),
            context=context,
            recompute=recompute_of(row, "none"),
            float8=is_float8(row),
            overlap_tensor=True,
        ),
        gpus,
        _cluster(row, NETWORK_400G),
        MEGATRON,
    )


def _pythia(row: Row) -> GpuRun:
    """Return a run of Pythia: GPT-NeoX with fused attention on AWS; it reads data from /fsx.

    There is no calibration row, so nothing is fitted.
    """
    model, gpus = configured(row, "Pythia", PYTHIA), row.count("n_gpus")
    if gpus % model.tensor:
        raise CannotPredict(
            f"the number of GPUs must be a multiple of {model.tensor}; got {gpus}",
            code="gpus-not-divisible",
        )
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
            GPT_NEOX_TENSOR if model.tensor > 1 else GPT_NEOX,
        )
    )


def _unstated(row: Row) -> NoReturn:
    """Raise CannotPredict for GenSLM of August 2022: its code and configurations contradict."""
    raise CannotPredict(
        "the micro-batch is not stated, public configurations give two, and there is no calibration"
        f" row of {row.text('cluster')}",
        code="micro-batch-ambiguous",
    )


def _as_configured(run: GpuRun) -> GpuRun:
    """Return the run if the configured micro-batch fits the memory.

    Otherwise the run differed from its configuration in a way that is not published.
    """
    memory = training_memory(run.workload, run.parallelism, run.gpus, run.software)
    if not memory.fits(run.cluster.gpu):
        raise CannotPredict(
            "the micro-batch is not stated, and the configured one does not fit the memory: the"
            " one that was used is unknown",
            code="micro-batch-too-large",
        )
    return run


_BUILDERS: Mapping[str, Callable[[Row], GpuRun]] = {
    "MosaicML": _foundry,
    "Selene": _selene,
    "Meta": _torchtitan,
    "WhiteFiber": _torchtitan,
    "NVIDIA DGX": _nemo,
    "NVIDIA": _megatron,
    "EleutherAI": _pythia,
    "Polaris": _polaris,
    "Perlmutter": _unstated,
}


def _decoder(row: Row, vocab: int, head_size: int | None = None) -> Workload:
    hidden = row.count("hidden")
    heads = hidden // head_size if head_size else row.count("heads")
    return Workload(
        parameters=parameters_of(row),
        hidden=hidden,
        layers=row.count("layers"),
        heads=heads,
        seq_len=row.count("seq_len"),
        vocab=vocab,
    )


def _cluster(row: Row, network: NetworkSpec) -> GpuClusterSpec:
    return GpuClusterSpec(
        gpu=gpu_of(row), gpus_per_node=row.count("gpus_per_node"), network=network, host=HOST
    )
