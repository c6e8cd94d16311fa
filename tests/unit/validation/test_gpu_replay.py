"""Replays of GPU rows, on published rows quoted with their ids."""

import pytest

from tests.support.gpu_rows import (
    A100,
    CALIBRATION,
    GENSLM_25B,
    GENSLM_25M,
    LLAMA_8B,
    MPT,
    PYTHIA,
    SERVED,
    family_of,
    llama,
    mpt,
    rows_of,
    served,
    slm,
)
from validation.families.gpu import FITS
from validation.fit.constants import constants


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
        | mpt("64", "8", "4", "True", "26274")
        | {
            "workload": "MPT 70b",
            "model_params": "64862437376",
            "hidden": "8192",
            "layers": "80",
            "heads": "64",
        },
        "G0130": MPT
        | A100
        | mpt("8", "1", "2", "False", "162946")
        | {
            "workload": "MPT 125m",
            "model_params": "174070272",
            "hidden": "768",
            "layers": "12",
            "heads": "12",
            "seq_len": "65536",
        },
        "G0381": LLAMA_8B | llama("FSDP+compile+Float8", "float8", "8380") | {"n_gpus": "128"},
        "G0309": GENSLM_25M | slm("256", "ZeRO-2", "7715.576"),
        "G0302": GENSLM_25B | slm("1024", "ZeRO-3", "73.898"),
        "G0303": GENSLM_25B | slm("4096", "ZeRO-3", "124.391"),
    }
    for row in rows_of(tmp_path, held_back):
        assert family_of(row).predict(row.described()) == pytest.approx(float(row.value), rel=0.1)


def test_a_configuration_of_polaris_is_predicted_without_a_calibration_row(tmp_path):
    """G0243: 25B on 16 GPUs, weights gathered over slow links and the optimizer on the host."""
    there = {"cluster": "Polaris", "gpu": "A100-40GB", "gpus_per_node": "4"}
    run = GENSLM_25B | slm("16", "DeepSpeed (stage not stated)", "0.841") | there
    (row,) = rows_of(tmp_path, {"G0243": run})
    assert family_of(row).name == "GPU training uncalibrated"
    assert family_of(row).predict(row.described()) == pytest.approx(0.841, rel=0.1)


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
                "G0384": big | llama("FSDP8 TP8 PP8 1F1B", "float8", "100"),
                "b": big | llama("FSDP8 TP8 PP8 Interleaved 1F1B", "float8", "1"),
            },
        )
    )
    assert plain == pytest.approx(100, rel=0.08)
    assert 1.1 * plain < interleaved < 1.5 * plain


def test_a_request_has_prompt_and_output(tmp_path):
    """G0415: 4,096 tokens in and 4,096 out on one GPU."""
    cells = SERVED | served("end-to-end", "1", "78.4")
    cells |= {"seq_len": "4096/4096", "unit": "tokens/s per request"}
    (row,) = rows_of(tmp_path, {"G0415": cells})
    assert family_of(row).predict(row) == pytest.approx(78.4, rel=0.05)
