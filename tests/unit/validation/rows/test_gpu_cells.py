"""What cells of GPU rows say: however they are spelt, and where they say too little."""

import pytest

from tests.support.gpu_rows import (
    CALIBRATION,
    GENSLM_25M,
    H100,
    LLAMA_8B,
    MPT_7B,
    PYTHIA,
    SERVED,
    family_of,
    llama,
    mpt,
    rows_of,
    served,
    slm,
)
from validation.families.replay import CannotReplay


def predicted(tmp_path, *cells):
    rows = rows_of(tmp_path, {f"r{i}": one for i, one in enumerate(cells)})
    return [family_of(row).predict(row.described()) for row in rows]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (GENSLM_25M | slm("4", "DeepSpeed", "1") | {"cluster": "Polaris"}, "row of Polaris"),
        (GENSLM_25M | slm("8", "ZeRO-3", "1") | {"seq_len": "10240"}, "does not fit the memory"),
        (GENSLM_25M | slm("8", "ZeRO-3", "1") | {"workload": "GenSLM 7B"}, "of GenSLM 7B"),
        (GENSLM_25M | slm("4", "ZeRO-Infinity", "1"), "parallelism 'ZeRO-Infinity'"),
        (LLAMA_8B | llama("FSDP8 TP8", "float8 rowwise", "1"), "scales per row"),
        (LLAMA_8B | llama("FSDP 4, CP2", "bf16", "1"), "context parallelism"),
        (LLAMA_8B | llama("FSDP", "bf16", "1") | {"microbatch": ""}, "microbatch"),
        (LLAMA_8B | llama("FSDP", "bf16", "1") | {"unit": "ms"}, "in ms"),
        (LLAMA_8B | llama("FSDP", "bf16", "1") | {"cluster": "elsewhere"}, "elsewhere"),
        (LLAMA_8B | llama("FSDP", "bf16", "1") | {"gpu": "B200"}, "no numbers for a B200"),
        (CALIBRATION["GPU training Megatron"]["G0402"] | {"workload": "weak scaling"}, "shape"),
        (CALIBRATION["GPU training Megatron"]["G0402"] | {"n_gpus": "100"}, "100 GPUs"),
        (PYTHIA | {"workload": "Pythia 12B", "n_gpus": "1"}, "1 GPUs are not divided by 4"),
        (SERVED | served("decode", "1", "1") | {"seq_len": ""}, "seq_len"),
        (SERVED | served("decode", "1", "1") | {"unit": "ms"}, "not ms"),
        (SERVED | served("decode", "1", "1") | {"gpu": "H100"}, "calibration row of a H100"),
        (SERVED | served("decode", "1", "1") | {"cluster": "elsewhere"}, "elsewhere"),
        (SERVED | served("decode", "1", "1") | {"global_batch": "8"}, "one request"),
        (SERVED | served("decode", "1", "1") | {"dtype": "int4"}, "16-bit"),
        (SERVED | {"workload": "GEMV", "n_gpus": "1", "unit": "ms", "value": "1"}, "GEMV on GPUs"),
        (MPT_7B | H100 | mpt("8", "6", "1", "offloaded", "1"), "act_ckpt 'offloaded'"),
        (MPT_7B | H100 | mpt("8", "6", "1", "False", "1") | {"unit": "GPU-hours"}, "GPU-hours"),
        (MPT_7B | H100 | mpt("8", "6", "1", "False", "1") | {"dtype": "fp32"}, "16 and 8 bit"),
        (LLAMA_8B | llama("HSDP", "bf16", "1"), "parallelism 'HSDP'"),
        (LLAMA_8B | llama("FSDP", "mxfp8", "1"), "scales per row or block"),
        (
            CALIBRATION["GPU training Megatron"]["G0402"] | {"gpu": "A100-80GB"},
            "Megatron on a A100",
        ),
        (SERVED | served("end-to-end", "1", "1"), "how many tokens go in"),
    ],
)
def test_what_a_row_does_not_tell_is_the_reason(cells, reason, tmp_path):
    """A replay never guesses what neither row nor public configuration states."""
    (row,) = rows_of(tmp_path, {"a": cells})
    with pytest.raises(CannotReplay, match=reason):
        family_of(row).predict(row)


def test_degrees_of_parallelism_may_be_spelt_as_one_likes(tmp_path):
    """What is not understood would be taken for 1, which is another run."""
    spellings = ("FSDP8 TP8", "FSDP 8, TP 8", "FSDP=8 TP=8", "fsdp8 tp8")
    runs = [LLAMA_8B | {"n_gpus": "64"} | llama(text, "bf16", "1") for text in spellings]
    assert len(set(predicted(tmp_path, *runs))) == 1


def test_eight_bits_may_stand_in_either_cell(tmp_path):
    """As dtype or as part of the parallelism, as float8 or as fp8."""
    eight = predicted(
        tmp_path,
        LLAMA_8B | llama("FSDP+compile", "float8", "1"),
        LLAMA_8B | llama("FSDP+compile", "fp8", "1"),
        LLAMA_8B | llama("FSDP+compile+Float8", "bf16", "1"),
    )
    (sixteen,) = predicted(tmp_path, LLAMA_8B | llama("FSDP+compile", "bf16", "1"))
    assert len(set(eight)) == 1
    assert eight[0] > 1.2 * sixteen


def test_what_is_recomputed_is_what_the_row_says(tmp_path):
    """The software's own choice counts where the row is silent; more of it takes longer."""
    run = LLAMA_8B | llama("FSDP+compile", "bf16", "1")
    silent, none, selective, full = predicted(
        tmp_path, *(run | {"act_ckpt": said} for said in ("", "none", "selective", "full"))
    )
    assert silent == selective
    assert none > selective > full


def test_a_run_is_predicted_on_the_gpu_that_its_row_names(tmp_path):
    """Not on the one that most rows of that source have."""
    run = LLAMA_8B | llama("FSDP+compile", "bf16", "1")
    names = ("A100-80GB", "H100-96GB HBM2e 500W", "H100 SXM", "H200")
    rates = predicted(tmp_path, *(run | {"gpu": name} for name in names))
    assert rates == sorted(rates)
    assert len(set(rates)) == 4
    plain, spelt = predicted(
        tmp_path,
        MPT_7B | H100 | mpt("8", "6", "1", "False", "1"),
        MPT_7B | H100 | mpt("8", "6", "1", "False", "1") | {"gpu": "H100 80GB"},
    )
    assert plain == spelt


def test_throughput_is_told_in_every_usual_unit(tmp_path):
    """All follow from one step."""
    run = MPT_7B | H100 | mpt("8", "6", "1", "False", "1")
    units = (
        "tokens/s", "tokens/s/GPU", "tokens/s per GPU", "samples/sec", "s/step", "ms per iteration",
        "% MFU", "TFLOP/s/GPU", "PFLOP/s",
    )  # fmt: skip
    tokens, each, per_gpu, samples, step_s, step_ms, mfu, tflops, pflops = predicted(
        tmp_path, *(run | {"unit": unit} for unit in units)
    )
    assert each == per_gpu == tokens / 8
    assert samples == pytest.approx(tokens / 2048)
    assert step_s == pytest.approx(48 / samples)
    assert step_ms == pytest.approx(1e3 * step_s)
    assert tflops == pytest.approx(989 * mfu / 100)
    assert pflops == pytest.approx(8 * tflops / 1e3)


def test_names_of_models_may_be_spelt_as_one_likes(tmp_path):
    """Hyphens, capitals and remarks change nothing about a model."""
    decode = SERVED | {"n_gpus": "1", "value": "1"}
    rates = predicted(
        tmp_path, *(decode | {"workload": f"{name} decode"} for name in ("LLaMA3-8B", "Llama-3 8B"))
    )
    assert rates[0] == rates[1]
    names = ("Pythia 1.4B", "Pythia-1.4B", "Pythia 1.4B (deduped)")
    hours = predicted(tmp_path, *(PYTHIA | {"workload": name} for name in names))
    assert len(set(hours)) == 1


def test_a_model_may_state_its_size_as_text(tmp_path):
    """As the rows of Pythia do."""
    run = LLAMA_8B | llama("FSDP", "bf16", "1")
    number, text = predicted(tmp_path, run, run | {"model_params": "8.03B"})
    assert number == text


def test_a_batch_may_stand_in_the_workload(tmp_path):
    """G0402 states it twice."""
    run = CALIBRATION["GPU training Megatron"]["G0402"]
    both, once = predicted(tmp_path, run, run | {"global_batch": ""})
    assert both == once
