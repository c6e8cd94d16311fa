"""What a run or a request on GPUs comes to, in the unit of its row."""

from __future__ import annotations

import re

from baselines.gpu import (
    GpuClusterSpec,
    decode_s_per_token,
    model_flops_utilisation,
    prefill_s,
    request_s,
    step_time,
)
from validation.families.replay import CannotReplay
from validation.rows.cells import (
    count,
    in_token_unit,
    in_training_unit,
    prompt_and_output,
)
from validation.rows.decoders import named_decoder
from validation.rows.gpu_models import PYTHIA_BATCH, PYTHIA_STEPS
from validation.rows.gpu_runs import GpuRun
from validation.rows.row import Row
from validation.rows.row_words import letters_of
from validation.rows.units import measure
from waferstream.reports.economics import SECONDS_PER_HOUR

VOCABULARIES = {"llama3": 128_256, "llama2": 32_000, "codellama": 32_016, "qwen2": 152_064}
"""By the letters of a family of models; from their configuration files."""

_PREFIXES = {"T": 1e12, "P": 1e15, "E": 1e18}


def training_rate(row: Row, run: GpuRun) -> float:
    """Throughput, time of a step, FLOP/s, utilisation, or GPU-hours of a whole Pythia training."""
    step = step_time(run.workload, run.parallelism, run.gpus, run.cluster, run.software)
    utilisation = model_flops_utilisation(run.workload, step.tokens_per_s, run.gpus, run.cluster)
    if row.unit == "% MFU":
        return 100 * utilisation
    if (unit := re.match(r"([TPE])FLOPs?/s(/GPU)?$", measure(row.unit))) is not None:
        of_one = utilisation * run.cluster.gpu.flops_16bit_per_s
        return of_one * (1 if unit[2] else run.gpus) / _PREFIXES[unit[1]]
    if row.unit.startswith("GPU-hours") and "Pythia" in row.text("workload"):
        steps_s = PYTHIA_STEPS * PYTHIA_BATCH / step.samples_per_s
        return run.gpus * steps_s / SECONDS_PER_HOUR
    return in_training_unit(row, step.samples_per_s, step.samples, run.workload.seq_len, run.gpus)


def prefill_rate(row: Row, cluster: GpuClusterSpec) -> float:
    """Prompt tokens per second."""
    tokens, gpus = count(row, "seq_len"), count(row, "n_gpus")
    return in_token_unit(row, tokens / prefill_s(named_decoder(row), tokens, gpus, cluster))


def decode_rate(row: Row, cluster: GpuClusterSpec) -> float:
    """Tokens per second at the context of the row."""
    tokens, gpus = count(row, "seq_len"), count(row, "n_gpus")
    seconds = decode_s_per_token(named_decoder(row), _vocabulary(row), tokens, gpus, cluster)
    return in_token_unit(row, 1 / seconds)


def request_rate(row: Row, cluster: GpuClusterSpec) -> float:
    """Tokens that decoding gives per second of prefill and decode (WaferLLM, section 7.1)."""
    (prompt, output), gpus = prompt_and_output(row), count(row, "n_gpus")
    seconds = request_s(named_decoder(row), _vocabulary(row), prompt, output, gpus, cluster)
    return in_token_unit(row, output / seconds)


def _vocabulary(row: Row) -> int:
    workload = letters_of(row.text("workload"))
    for family, vocab in VOCABULARIES.items():
        if workload.startswith(family):
            return vocab
    raise CannotReplay("the vocabulary of the decoder is not known")
