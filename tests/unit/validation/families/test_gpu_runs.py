"""Runs of GPU training rows, whichever way their columns are spelt."""

from __future__ import annotations

import pytest

from tests.support.timing.reference_rows import variant
from validation.families.gpu_runs import GpuRun, gpu_run
from validation.rows.row import CannotPredict

MPT_7B = "G0039"  # 8 H100, LLM Foundry, without recomputation
GENSLM_25M = "G0268"  # 8 A100 of Selene, ZeRO-3
LLAMA_8B = "G0377"  # 8 H100 with 500 W, TorchTitan compiled
LLAMA_70B = "G0512"  # 64 H100, NeMo: tensor, pipeline and context parallelism
MEGATRON = "G0402"  # GPT-3 177B on 96 H100
PYTHIA = "G0407"  # Pythia 1B on 64 A100


def _run(row_id: str, **changes: str) -> GpuRun:
    return gpu_run(variant(row_id, **changes))


@pytest.mark.parametrize(
    ("row_id", "changes", "code"),
    [
        (GENSLM_25M, {"cluster": "Polaris"}, "micro-batch-ambiguous"),
        (GENSLM_25M, {"cluster": "Perlmutter"}, "micro-batch-ambiguous"),
        (GENSLM_25M, {"seq_len": "10240"}, "micro-batch-too-large"),
        (GENSLM_25M, {"workload": "GenSLM GPT-NeoX 7B"}, "model-without-configuration"),
        (GENSLM_25M, {"workload": "GenSLM 25M"}, "model-without-configuration"),
        (GENSLM_25M, {"parallelism": "ZeRO-Infinity"}, "column-value-unknown"),
        (LLAMA_8B, {"dtype": "float8 rowwise"}, "float8-scales"),
        (LLAMA_8B, {"dtype": "mxfp8"}, "float8-scales"),
        (LLAMA_8B, {"parallelism": "HSDP"}, "column-value-unknown"),
        (LLAMA_8B, {"microbatch": ""}, "column-empty"),
        (LLAMA_8B, {"cluster": "elsewhere"}, "no-calibration-row"),
        (LLAMA_8B, {"gpu": "B300"}, "gpu-unknown"),
        (MEGATRON, {"workload": "weak scaling"}, "run-not-stated"),
        (MEGATRON, {"n_gpus": "100"}, "gpus-not-divisible"),
        (MEGATRON, {"gpu": "A100-80GB"}, "no-calibration-row"),
        (PYTHIA, {"workload": "Pythia 12B", "n_gpus": "1"}, "gpus-not-divisible"),
        (MPT_7B, {"act_ckpt": "offloaded"}, "column-value-unknown"),
        (MPT_7B, {"dtype": "fp32"}, "training-dtype"),
    ],
)
def test_runs_that_are_not_stated_give_the_reason(
    row_id: str, changes: dict[str, str], code: str
) -> None:
    """Nothing is guessed that neither row nor public configuration states."""
    with pytest.raises(CannotPredict) as reason:
        _run(row_id, **changes)
    assert reason.value.code == code


def test_degrees_of_parallelism_are_read_in_all_spellings() -> None:
    """An unknown spelling would be read as degree 1, which is another run."""
    spellings = ("FSDP8 TP8", "FSDP 8, TP 8", "FSDP=8 TP=8", "fsdp8 tp8")
    runs = [_run(LLAMA_8B, n_gpus="64", parallelism=text) for text in spellings]
    assert all(run == runs[0] for run in runs)
    assert runs[0].parallelism.tensor == 8


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float8"},
        {"dtype": "fp8"},
        {"parallelism": "FSDP+compile+Float8"},
    ],
)
def test_float8_is_read_from_dtype_or_parallelism(changes: dict[str, str]) -> None:
    """Papers write it in either column."""
    assert _run(LLAMA_8B, **changes).parallelism.float8
    assert not _run(LLAMA_8B).parallelism.float8


@pytest.mark.parametrize(
    ("stated", "recompute"),
    [("", "selective"), ("none", "none"), ("selective op", "selective"), ("full", "needed")],
)
def test_recomputation_is_stated_or_the_default_of_the_software(
    stated: str, recompute: str
) -> None:
    """TorchTitan recomputes a model of 8B selectively, and a whole layer as far as needed."""
    assert _run(LLAMA_8B, act_ckpt=stated).parallelism.recompute == recompute


def test_gpus_are_found_by_the_letters_of_their_names() -> None:
    """The row decides, not the usual GPU of that source."""
    names = ("A100-80GB", "H100-96GB HBM2e 500W", "H100 SXM", "H200")
    gpus = [_run(LLAMA_8B, gpu=name).cluster.gpu for name in names]
    assert len({gpu.name for gpu in gpus}) == 4
    assert _run(MPT_7B, gpu="H100 80GB").cluster.gpu == _run(MPT_7B).cluster.gpu


def test_rows_of_nemo_state_their_degrees() -> None:
    """Four GPUs to a matrix, four stages of five parts, two GPUs to a sequence, 64 in flight."""
    run = _run(LLAMA_70B)
    assert run.workload.parameters == pytest.approx(70.6e9, rel=0.01)
    split = run.parallelism
    assert (split.tensor, split.pipeline, split.context, split.virtual_stages) == (4, 4, 2, 5)
    assert split.samples_per_step(run.gpus) == 128
    assert split.float8


def test_rows_of_foundry_recompute_as_their_pytorch_does() -> None:
    """Rows of amp are of PyTorch 2.1, which stops where nothing more is needed."""
    stated = [
        _run(MPT_7B, act_ckpt="True", dtype=dtype).parallelism.recompute
        for dtype in ("bf16", "amp_bf16")
    ]
    assert stated == ["full", "needed"]


def test_configured_models_are_found_by_size() -> None:
    """Hyphens and remarks in the name do not matter."""
    names = ("Pythia 1.4B", "Pythia-1.4B", "Pythia 1.4B (deduped)")
    runs = [_run(PYTHIA, workload=name) for name in names]
    assert {run.workload.parameters for run in runs} == {1_414_647_808}


def test_parameters_may_be_stated_as_text() -> None:
    """Rows of Pythia state them so."""
    assert _run(LLAMA_8B, model_params="8.03B").workload.parameters == 8.03e9


def test_batch_may_be_stated_in_the_workload() -> None:
    """G0402 states it twice."""
    assert _run(MEGATRON, global_batch="") == _run(MEGATRON)
