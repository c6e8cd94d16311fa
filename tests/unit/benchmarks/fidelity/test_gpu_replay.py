"""Replays of GPU rows, on published rows quoted with their ids."""

from pathlib import Path

import pytest

from benchmarks.fidelity.columns import COLUMNS
from benchmarks.fidelity.constants import constants
from benchmarks.fidelity.gpu import FAMILIES, FITS
from benchmarks.fidelity.replay import CannotReplay, Family
from benchmarks.fidelity.rows import Row, read_rows

MPT = {
    "cluster": "MosaicML",
    "gpus_per_node": "8",
    "phase": "train",
    "seq_len": "2048",
    "parallelism": "FSDP FULL_SHARD",
    "unit": "tokens/s",
}
MPT_13B = MPT | {
    "workload": "MPT 13b",
    "model_params": "12853954560",
    "hidden": "5120",
    "layers": "40",
    "heads": "40",
}
MPT_7B = MPT | {
    "workload": "MPT 7b",
    "model_params": "6658859008",
    "hidden": "4096",
    "layers": "32",
    "heads": "32",
}
H100 = {"gpu": "h100_80gb", "dtype": "amp_bf16"}
A100 = {"gpu": "a100_80gb", "dtype": "amp_bf16"}
SMALL_A100 = {"gpu": "a100_40gb", "dtype": "bf16"}
GENSLM = {
    "cluster": "Selene",
    "gpu": "A100-80GB",
    "gpus_per_node": "8",
    "phase": "train",
    "seq_len": "2048",
    "dtype": "fp16",
    "unit": "samples/s",
}
GENSLM_25M = GENSLM | {
    "workload": "GenSLM GPT-NeoX 25M",
    "model_params": "25290752",
    "hidden": "512",
    "layers": "8",
    "heads": "8",
}
GENSLM_250M = GENSLM | {
    "workload": "GenSLM GPT-NeoX 250M",
    "model_params": "244464576",
    "hidden": "1840",
    "layers": "12",
    "heads": "16",
}
GENSLM_25B = GENSLM | {
    "workload": "GenSLM GPT-NeoX 25B",
    "model_params": "25076188032",
    "hidden": "8196",
    "layers": "64",
    "heads": "64",
}
GENSLM_2B = GENSLM | {
    "workload": "GenSLM GPT-NeoX 2.5B",
    "model_params": "2533931008",
    "hidden": "3840",
    "layers": "28",
    "heads": "32",
}
LLAMA_8B = {
    "cluster": "Meta Grand Teton",
    "gpu": "H100-96GB HBM2e 500W",
    "n_gpus": "8",
    "gpus_per_node": "8",
    "phase": "train",
    "workload": "Llama 3.1 8B",
    "model_params": "8030000000.0",
    "hidden": "4096",
    "layers": "32",
    "seq_len": "8192",
    "microbatch": "2",
    "unit": "tokens/s/GPU",
}
SERVED = {
    "cluster": "WaferLLM testbed",
    "gpu": "A100",
    "gpus_per_node": "8",
    "phase": "inference",
    "seq_len": "4096",
    "parallelism": "TP",
    "unit": "tokens/s",
}


def _mpt(gpus, micro, accumulated, recomputed, value):
    return {
        "n_gpus": gpus,
        "microbatch": micro,
        "grad_accum": accumulated,
        "act_ckpt": recomputed,
        "value": value,
    }


def _slm(gpus, parallelism, value):
    return {"n_gpus": gpus, "parallelism": parallelism, "value": value}


def _llama(parallelism, dtype, value):
    return {"parallelism": parallelism, "dtype": dtype, "value": value}


def _served(phase, gpus, value):
    return {"workload": f"LLaMA3-8B {phase}", "n_gpus": gpus, "value": value}


PYTHIA = {
    "cluster": "EleutherAI/Stability",
    "gpu": "A100-40GB",
    "n_gpus": "64",
    "gpus_per_node": "8",
    "phase": "train",
    "unit": "GPU-hours for the full training run",
    "value": "4830",
}


CALIBRATION = {
    "GPU training FSDP": {
        "G0007": MPT_13B | H100 | _mpt("512", "16", "1", "True", "2535811"),
        "G0010": MPT_7B | H100 | _mpt("512", "6", "1", "False", "4951479"),
        "G0030": MPT_13B | H100 | _mpt("64", "2", "1", "False", "307209"),
        "G0033": MPT_13B | H100 | _mpt("8", "2", "1", "False", "38336"),
        "G0039": MPT_7B | H100 | _mpt("8", "6", "1", "False", "85144"),
        "G0089": MPT_13B | A100 | _mpt("8", "2", "3", "False", "18097"),
        "G0096": MPT_7B | A100 | _mpt("8", "6", "2", "False", "37130"),
        "G0146": MPT_13B | SMALL_A100 | _mpt("64", "16", "1", "True", "126479"),
        "G0149": MPT_13B | SMALL_A100 | _mpt("8", "4", "16", "True", "13347"),
        "G0156": MPT_7B | SMALL_A100 | _mpt("64", "18", "1", "True", "234614"),
        "G0159": MPT_7B | SMALL_A100 | _mpt("8", "12", "4", "True", "29436"),
    },
    "GPU training TorchTitan": {
        "G0376": LLAMA_8B | _llama("FSDP", "bf16", "5762"),
        "G0377": LLAMA_8B | _llama("FSDP+compile", "bf16", "6667"),
        "G0378": LLAMA_8B | _llama("FSDP+compile+Float8", "float8", "8532"),
    },
    "GPU training DeepSpeed": {
        "G0268": GENSLM_25M | _slm("8", "ZeRO-3", "463.065"),
        "G0272": GENSLM_25M | _slm("128", "ZeRO-3", "6276.428"),
        "G0277": GENSLM_250M | _slm("8", "ZeRO-3", "106.229"),
        "G0281": GENSLM_250M | _slm("128", "ZeRO-3", "1509.376"),
        "G0284": GENSLM_250M | _slm("1024", "ZeRO-3", "6651.95"),
        "G0289": GENSLM_2B | _slm("64", "ZeRO-3", "139.286"),
        "G0292": GENSLM_2B | _slm("512", "ZeRO-3", "749.027"),
        "G0326": GENSLM_25M | _slm("8", "DDP", "340.501"),
        "G0330": GENSLM_25M | _slm("128", "DDP", "5233.406"),
        "G0332": GENSLM_25M | _slm("512", "DDP", "20665.555"),
        "G0334": GENSLM_250M | _slm("8", "DDP", "83.142"),
        "G0338": GENSLM_250M | _slm("128", "DDP", "1306.981"),
    },
    "GPU training Megatron": {
        "G0402": {
            "cluster": "NVIDIA (Eos-class)",
            "gpu": "H100",
            "n_gpus": "96",
            "gpus_per_node": "8",
            "phase": "train",
            "workload": "strong scaling GPT-3 177B, batch 1152",
            "model_params": "177000000000.0",
            "global_batch": "1152",
            "parallelism": "TP+PP+DP",
            "unit": "% MFU",
            "value": "47",
        }
    },
    "GPU inference prefill": {
        "G0432": SERVED | _served("prefill", "1", "13988.3"),
        "G0433": SERVED | _served("prefill", "8", "17361.6"),
        "G0434": SERVED | _served("prefill", "16", "13994.2"),
    },
    "GPU inference decode": {
        "G0443": SERVED | _served("decode", "1", "78.9"),
        "G0444": SERVED | _served("decode", "8", "260.4"),
        "G0445": SERVED | _served("decode", "16", "164.6"),
    },
}


def rows_of(folder: Path, cells: dict[str, dict[str, str]]) -> tuple[Row, ...]:
    columns = COLUMNS["gpu"]
    lines = [",".join(columns)]
    for row_id, known in cells.items():
        filled = {"row_id": row_id, "use": "calibration"} | known
        lines.append(",".join(f'"{filled.get(column, "")}"' for column in columns))
    path = folder / "rows.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    return read_rows(path)


def family_of(row: Row) -> Family:
    return next(family for family in FAMILIES if family.knows(row.described()))


@pytest.mark.parametrize("fit", FITS, ids=lambda fit: fit.family)
def test_constants_are_those_that_the_fit_finds(fit, tmp_path):
    """Whoever repeats a fit gets the numbers that stand in the emulator."""
    known = {f"{one.holder}.{one.name}": one for one in constants()}
    for name, value in fit.fit(rows_of(tmp_path, CALIBRATION[fit.family])).items():
        assert known[name].status == "fitted"
        assert known[name].value == pytest.approx(value, rel=0.01)


@pytest.mark.parametrize("name", CALIBRATION)
def test_calibration_rows_are_met(name, tmp_path):
    """On average within 5 %, none worse than 15 %, though every stack has few constants."""
    errors = []
    for row in rows_of(tmp_path, CALIBRATION[name]):
        family = family_of(row)
        assert family.name == name
        errors.append(abs(family.predict(row.described()) / float(row.value) - 1))
    assert sum(errors) / len(errors) < 0.05
    assert max(errors) < 0.15


def test_rows_that_nothing_was_fitted_to_are_met(tmp_path):
    """Other sizes, counts of GPUs and sequence lengths than those of the calibration rows."""
    held_back = {
        "G0078": MPT
        | A100
        | _mpt("64", "8", "4", "True", "26274")
        | {
            "workload": "MPT 70b",
            "model_params": "64862437376",
            "hidden": "8192",
            "layers": "80",
            "heads": "64",
        },
        "G0130": MPT
        | A100
        | _mpt("8", "1", "2", "False", "162946")
        | {
            "workload": "MPT 125m",
            "model_params": "174070272",
            "hidden": "768",
            "layers": "12",
            "heads": "12",
            "seq_len": "65536",
        },
        "G0381": LLAMA_8B | _llama("FSDP+compile+Float8", "float8", "8380") | {"n_gpus": "128"},
        "G0309": GENSLM_25M | _slm("256", "ZeRO-2", "7715.576"),
        "G0302": GENSLM_25B | _slm("1024", "ZeRO-3", "73.898"),
        "G0303": GENSLM_25B | _slm("4096", "ZeRO-3", "124.391"),
    }
    for row in rows_of(tmp_path, held_back):
        assert family_of(row).predict(row.described()) == pytest.approx(float(row.value), rel=0.1)


def test_a_configuration_of_polaris_is_predicted_without_a_calibration_row(tmp_path):
    """G0243: 25B on 16 GPUs, weights gathered over slow links and the optimizer on the host."""
    there = {"cluster": "Polaris", "gpu": "A100-40GB", "gpus_per_node": "4"}
    run = GENSLM_25B | _slm("16", "DeepSpeed (stage not stated)", "0.841") | there
    (row,) = rows_of(tmp_path, {"G0243": run})
    assert family_of(row).name == "GPU training uncalibrated"
    assert family_of(row).predict(row.described()) == pytest.approx(0.841, rel=0.1)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (GENSLM_25M | _slm("4", "DeepSpeed", "1") | {"cluster": "Polaris"}, "row of Polaris"),
        (GENSLM_25M | _slm("8", "ZeRO-3", "1") | {"seq_len": "10240"}, "does not fit the memory"),
        (GENSLM_25M | _slm("8", "ZeRO-3", "1") | {"workload": "GenSLM 7B"}, "of GenSLM 7B"),
        (GENSLM_25M | _slm("4", "ZeRO-Infinity", "1"), "parallelism 'ZeRO-Infinity'"),
        (LLAMA_8B | _llama("FSDP8 TP8", "float8 rowwise", "1"), "scales per row"),
        (LLAMA_8B | _llama("FSDP 4, CP2", "bf16", "1"), "context parallelism"),
        (LLAMA_8B | _llama("FSDP", "bf16", "1") | {"microbatch": ""}, "microbatch"),
        (LLAMA_8B | _llama("FSDP", "bf16", "1") | {"unit": "ms"}, "in ms"),
        (LLAMA_8B | _llama("FSDP", "bf16", "1") | {"cluster": "elsewhere"}, "elsewhere"),
        (LLAMA_8B | _llama("FSDP", "bf16", "1") | {"gpu": "B200"}, "no numbers for a B200"),
        (CALIBRATION["GPU training Megatron"]["G0402"] | {"workload": "weak scaling"}, "shape"),
        (CALIBRATION["GPU training Megatron"]["G0402"] | {"n_gpus": "100"}, "100 GPUs"),
        (PYTHIA | {"workload": "Pythia 12B", "n_gpus": "1"}, "1 GPUs are not divided by 4"),
        (SERVED | _served("decode", "1", "1") | {"seq_len": ""}, "seq_len"),
        (SERVED | _served("decode", "1", "1") | {"unit": "ms"}, "not ms"),
        (SERVED | _served("decode", "1", "1") | {"gpu": "H100"}, "calibration row of a H100"),
        (SERVED | _served("decode", "1", "1") | {"cluster": "elsewhere"}, "elsewhere"),
        (SERVED | _served("decode", "1", "1") | {"global_batch": "8"}, "one request"),
        (SERVED | _served("decode", "1", "1") | {"dtype": "int4"}, "16-bit"),
        (SERVED | {"workload": "GEMV", "n_gpus": "1", "unit": "ms", "value": "1"}, "GEMV on GPUs"),
        (MPT_7B | H100 | _mpt("8", "6", "1", "offloaded", "1"), "act_ckpt 'offloaded'"),
        (MPT_7B | H100 | _mpt("8", "6", "1", "False", "1") | {"unit": "GPU-hours"}, "GPU-hours"),
        (MPT_7B | H100 | _mpt("8", "6", "1", "False", "1") | {"dtype": "fp32"}, "16 and 8 bit"),
        (LLAMA_8B | _llama("HSDP", "bf16", "1"), "parallelism 'HSDP'"),
        (LLAMA_8B | _llama("FSDP", "mxfp8", "1"), "scales per row or block"),
        (
            CALIBRATION["GPU training Megatron"]["G0402"] | {"gpu": "A100-80GB"},
            "Megatron on a A100",
        ),
        (SERVED | _served("end-to-end", "1", "1"), "how many tokens go in"),
    ],
)
def test_what_a_row_does_not_tell_is_the_reason(cells, reason, tmp_path):
    """A replay never guesses what neither row nor public configuration states."""
    (row,) = rows_of(tmp_path, {"a": cells})
    with pytest.raises(CannotReplay, match=reason):
        family_of(row).predict(row)


def _predicted(tmp_path, *cells):
    rows = rows_of(tmp_path, {f"r{i}": one for i, one in enumerate(cells)})
    return [family_of(row).predict(row.described()) for row in rows]


def test_degrees_of_parallelism_may_be_spelt_as_one_likes(tmp_path):
    """What is not understood would be taken for 1, which is another run."""
    spellings = ("FSDP8 TP8", "FSDP 8, TP 8", "FSDP=8 TP=8", "fsdp8 tp8")
    runs = [LLAMA_8B | {"n_gpus": "64"} | _llama(text, "bf16", "1") for text in spellings]
    assert len(set(_predicted(tmp_path, *runs))) == 1


def test_eight_bits_may_stand_in_either_cell(tmp_path):
    """As dtype or as part of the parallelism, as float8 or as fp8."""
    eight = _predicted(
        tmp_path,
        LLAMA_8B | _llama("FSDP+compile", "float8", "1"),
        LLAMA_8B | _llama("FSDP+compile", "fp8", "1"),
        LLAMA_8B | _llama("FSDP+compile+Float8", "bf16", "1"),
    )
    (sixteen,) = _predicted(tmp_path, LLAMA_8B | _llama("FSDP+compile", "bf16", "1"))
    assert len(set(eight)) == 1
    assert eight[0] > 1.2 * sixteen


def test_what_is_recomputed_is_what_the_row_says(tmp_path):
    """The software's own choice counts where the row is silent; more of it takes longer."""
    run = LLAMA_8B | _llama("FSDP+compile", "bf16", "1")
    silent, none, selective, full = _predicted(
        tmp_path, *(run | {"act_ckpt": said} for said in ("", "none", "selective", "full"))
    )
    assert silent == selective
    assert none > selective > full


def test_a_run_is_predicted_on_the_gpu_that_its_row_names(tmp_path):
    """Not on the one that most rows of that source have."""
    run = LLAMA_8B | _llama("FSDP+compile", "bf16", "1")
    names = ("A100-80GB", "H100-96GB HBM2e 500W", "H100 SXM", "H200")
    rates = _predicted(tmp_path, *(run | {"gpu": name} for name in names))
    assert rates == sorted(rates)
    assert len(set(rates)) == 4
    plain, spelt = _predicted(
        tmp_path,
        MPT_7B | H100 | _mpt("8", "6", "1", "False", "1"),
        MPT_7B | H100 | _mpt("8", "6", "1", "False", "1") | {"gpu": "H100 80GB"},
    )
    assert plain == spelt


def test_throughput_is_told_in_every_usual_unit(tmp_path):
    """All follow from one step."""
    run = MPT_7B | H100 | _mpt("8", "6", "1", "False", "1")
    units = (
        "tokens/s", "tokens/s/GPU", "tokens/s per GPU", "samples/sec", "s/step", "ms per iteration",
        "% MFU", "TFLOP/s/GPU", "PFLOP/s",
    )  # fmt: skip
    tokens, each, per_gpu, samples, step_s, step_ms, mfu, tflops, pflops = _predicted(
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
    rates = _predicted(
        tmp_path, *(decode | {"workload": f"{name} decode"} for name in ("LLaMA3-8B", "Llama-3 8B"))
    )
    assert rates[0] == rates[1]
    names = ("Pythia 1.4B", "Pythia-1.4B", "Pythia 1.4B (deduped)")
    hours = _predicted(tmp_path, *(PYTHIA | {"workload": name} for name in names))
    assert len(set(hours)) == 1


def test_a_model_may_state_its_size_as_text(tmp_path):
    """As the rows of Pythia do."""
    run = LLAMA_8B | _llama("FSDP", "bf16", "1")
    number, text = _predicted(tmp_path, run, run | {"model_params": "8.03B"})
    assert number == text


def test_a_batch_may_stand_in_the_workload(tmp_path):
    """G0402 states it twice."""
    run = CALIBRATION["GPU training Megatron"]["G0402"]
    both, once = _predicted(tmp_path, run, run | {"global_batch": ""})
    assert both == once


def test_pythia_is_predicted_in_gpu_hours(tmp_path):
    """143,000 steps of 1,024 sequences; from its code and configuration alone, within a fifth."""
    cells = PYTHIA | {"workload": "Pythia 1B"}
    (row,) = rows_of(tmp_path, {"G0407": cells})
    assert family_of(row).name == "GPU training uncalibrated"
    assert family_of(row).predict(row) == pytest.approx(4830, rel=0.2)


def test_an_interleaved_pipeline_is_faster(tmp_path):
    """A stage of two parts halves the bubble."""
    big = LLAMA_8B | {
        "workload": "Llama 3.1 405B",
        "model_params": "405000000000.0",
        "hidden": "16384",
        "layers": "126",
        "n_gpus": "512",
        "microbatch": "32",
    }
    plain, interleaved = (
        family_of(row).predict(row)
        for row in rows_of(
            tmp_path,
            {
                "G0384": big | _llama("FSDP8 TP8 PP8 1F1B", "float8", "100"),
                "b": big | _llama("FSDP8 TP8 PP8 Interleaved 1F1B", "float8", "1"),
            },
        )
    )
    assert plain == pytest.approx(100, rel=0.08)
    assert 1.1 * plain < interleaved < 1.5 * plain


def test_a_request_has_prompt_and_output(tmp_path):
    """G0415: 4,096 tokens in and 4,096 out on one GPU."""
    cells = SERVED | _served("end-to-end", "1", "78.4")
    cells |= {"seq_len": "4096/4096", "unit": "tokens/s per request"}
    (row,) = rows_of(tmp_path, {"G0415": cells})
    assert family_of(row).predict(row) == pytest.approx(78.4, rel=0.05)
