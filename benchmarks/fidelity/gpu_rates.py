"""What a run or a request on GPUs comes to, in the unit of its row."""

from __future__ import annotations

from benchmarks.fidelity.cells import count, prompt_and_output
from benchmarks.fidelity.decoders import named_decoder
from benchmarks.fidelity.gpu_models import PYTHIA_BATCH, PYTHIA_STEPS
from benchmarks.fidelity.gpu_runs import GpuRun
from benchmarks.fidelity.replay import CannotReplay
from benchmarks.fidelity.rows import Row
from wsc.timing.economics import SECONDS_PER_HOUR
from wsc.timing.gpu import (
    GpuClusterSpec,
    decode_s_per_token,
    model_flops_utilisation,
    prefill_s,
    request_s,
    step_time,
)

VOCABULARIES = {"LLaMA3": 128_256, "LLaMA2": 32_000, "CodeLLaMA": 32_016, "QWen2": 152_064}
"""By family of models; from their configuration files."""


def training_rate(row: Row, run: GpuRun) -> float:
    """Throughput, utilisation, or GPU-hours of a whole Pythia training."""
    step = step_time(run.workload, run.parallelism, run.gpus, run.cluster, run.software)
    match row.unit:
        case "tokens/s":
            return step.tokens_per_s
        case "tokens/s/GPU":
            return step.tokens_per_s / run.gpus
        case "samples/s":
            return step.samples_per_s
        case "% MFU":
            rate = step.tokens_per_s
            return 100 * model_flops_utilisation(run.workload, rate, run.gpus, run.cluster)
        case unit if unit.startswith("GPU-hours"):
            steps_s = PYTHIA_STEPS * PYTHIA_BATCH / step.samples_per_s
            return run.gpus * steps_s / SECONDS_PER_HOUR
    raise CannotReplay(f"training is not predicted in {row.unit}")


def prefill_rate(row: Row, cluster: GpuClusterSpec) -> float:
    """Prompt tokens per second."""
    tokens, gpus = count(row, "seq_len"), count(row, "n_gpus")
    return _per_s(row, tokens / prefill_s(named_decoder(row), tokens, gpus, cluster))


def decode_rate(row: Row, cluster: GpuClusterSpec) -> float:
    """Tokens per second at the context of the row."""
    tokens, gpus = count(row, "seq_len"), count(row, "n_gpus")
    seconds = decode_s_per_token(named_decoder(row), _vocabulary(row), tokens, gpus, cluster)
    return _per_s(row, 1 / seconds)


def request_rate(row: Row, cluster: GpuClusterSpec) -> float:
    """Tokens that decoding gives per second of prefill and decode (WaferLLM, section 7.1)."""
    (prompt, output), gpus = prompt_and_output(row), count(row, "n_gpus")
    seconds = request_s(named_decoder(row), _vocabulary(row), prompt, output, gpus, cluster)
    return _per_s(row, output / seconds)


def _per_s(row: Row, tokens_per_s: float) -> float:
    if not row.unit.startswith("tokens/s"):
        raise CannotReplay(f"inference is not predicted in {row.unit}")
    return tokens_per_s


def _vocabulary(row: Row) -> int:
    for family, vocab in VOCABULARIES.items():
        if row.text("workload").startswith(family):
            return vocab
    raise CannotReplay("the vocabulary of the decoder is not known")
