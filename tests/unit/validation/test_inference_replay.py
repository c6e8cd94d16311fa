"""Inference rows are replayed on the regions that they name, and the fits repeat themselves."""

import pytest

from baselines.wafer_inference import PE_COSTS, ServiceSpec
from tests.support.reference_rows import row, write_rows
from validation.families.inference import FAMILIES, FITS
from validation.families.replays import Replays
from validation.rows.row import read_rows

DECODER = {"hidden": "4096", "layers": "32", "heads": "32"}
REGION = {"system": "CS-2 (WSE-2)", "seq_len": "4096", "dtype": "fp16", **DECODER}
SERVICE = {"system": "CS-3 inference service", "dtype": "16-bit weights"}


def inference(row_id, workload, value, unit="tokens/s", use="calibration", **fields):
    """A row of the training file, as the frame reads it."""
    described = {"phase": "inference", "evidence": "silicon", **fields}
    return row(
        row_id, "training", workload=workload, value=str(value), unit=unit, use=use, **described
    )


CALIBRATION = [
    inference("T0138", "LLaMA3-8B prefill [WaferLLM]", 20320.6, grid="480x480", **REGION),
    inference("T0140", "LLaMA3-8B prefill [WaferLLM]", 27686.5, grid="720x720", **REGION),
    inference("T0174", "LLaMA3-8B decode [WaferLLM]", 2699.9, grid="420x420", **REGION),
    inference("T0214", "Llama3.1-8B decode", 1800, "output tokens/s/user", **SERVICE),
]


def replay(tmp_path, *rows):
    return Replays.of(read_rows(write_rows(tmp_path / "rows.csv", *rows)), FAMILIES)


def test_each_calibration_row_is_met_in_its_own_family(tmp_path):
    """Prefill, decode and the service are told apart."""
    compared = replay(tmp_path, *CALIBRATION).compared
    families = ["prefill", "prefill", "decode", "inference service"]
    assert [one.family for one in compared] == families
    assert all(abs(one.error) < 0.02 for one in compared)


@pytest.mark.parametrize(
    ("family", "constants"),
    [
        ("prefill", {"column_cycles": PE_COSTS.column_cycles}),
        ("decode", {"function_cycles": PE_COSTS.function_cycles}),
        ("inference service", {"kernel_factor": ServiceSpec().kernel_factor}),
    ],
)
def test_a_fit_finds_the_constants_that_the_emulator_has(tmp_path, family, constants):
    """Fitted again on the same rows, each constant stays where it is."""
    rows = read_rows(write_rows(tmp_path / "rows.csv", *CALIBRATION))
    (fit,) = [fit for fit in FITS if fit.family == family]
    (knows,) = [one.knows for one in FAMILIES if one.name == family]
    fitted = fit.fit([one for one in rows if knows(one.described())])
    assert fitted == pytest.approx(constants, rel=1e-3)


def test_a_whole_request_names_both_regions(tmp_path):
    """T0115: a prompt of 4096 tokens on 660 x 660 PEs, 128 new ones on 360 x 360."""
    fields = REGION | {"seq_len": "4096/128", "grid": "prefill 660^2, decode 360^2"}
    workload = "LLaMA3-8B end-to-end [WaferLLM]"
    request = inference("T0115", workload, 604.4, "tokens/s per request", "validation", **fields)
    (one,) = replay(tmp_path, request).compared
    assert one.family == "end-to-end inference"
    assert abs(one.error) < 0.15


@pytest.mark.parametrize("phase", ["prefill", "decode", "end-to-end"])
def test_programs_of_others_on_the_same_regions_are_not_predicted(tmp_path, phase):
    """The evaluation that the rows come from compares WaferLLM with compilers far slower on it."""
    fields = REGION | {"grid": "480x480"}
    own, other = (
        inference(made_by, f"LLaMA3-8B {phase} [{made_by}]", 1, **fields)
        for made_by in ("WaferLLM", "elsewhere")
    )
    (listed,) = replay(tmp_path, other).listed
    assert (listed.family, listed.reason) == (
        "inference by other programs",
        "the programs of WaferLLM are modelled, not those of elsewhere",
    )
    assert not any("programs" in one.reason for one in replay(tmp_path, own).listed)


def test_a_grid_may_be_spelt_in_several_ways(tmp_path):
    """As papers and tables write a square of PEs."""
    rows = [
        inference(f"r{i}", "LLaMA3-8B decode [WaferLLM]", 1, **REGION | {"grid": grid})
        for i, grid in enumerate(("420x420", "420^2", "420 x 420", "420*420 PEs"))
    ]
    requests = [
        inference(f"q{i}", "LLaMA3-8B end-to-end", 1, **REGION | {"grid": grid, "seq_len": "9/9"})
        for i, grid in enumerate(("prefill 660^2, decode 360^2", "prefill: 660x660; decode: 360^2"))
    ]
    compared = replay(tmp_path, *rows, *requests).compared
    assert len({one.predicted for one in compared if one.family == "decode"}) == 1
    assert len({one.predicted for one in compared if one.family != "decode"}) == 1
    assert len(compared) == 6


def test_a_rate_of_tokens_may_be_the_time_of_one(tmp_path):
    """Both from one prediction."""
    fields = REGION | {"grid": "420x420"}
    rows = [
        inference(unit, "LLaMA3-8B decode [WaferLLM]", 1, unit, **fields)
        for unit in ("tokens/s", "tokens per second per user", "ms/token", "us per token")
    ]
    rate, per_user, time_ms, time_us = (one.predicted for one in replay(tmp_path, *rows).compared)
    assert rate == per_user == pytest.approx(1e3 / time_ms) == pytest.approx(1e6 / time_us)


def test_the_name_of_a_system_or_of_its_wafer_is_enough(tmp_path):
    """A CS-3 is not taken for a CS-2."""
    rates = [
        one.predicted
        for one in replay(
            tmp_path,
            *(
                inference(
                    system, "LLaMA3-8B decode", 1, **REGION | {"grid": "9^2", "system": system}
                )
                for system in ("CS-2 (WSE-2)", "CS-2", "CS-3 (WSE-3)", "CS-3")
            ),
        ).compared
    ]
    assert rates[0] == rates[1] != rates[2] == rates[3]


def test_columns_come_before_the_name(tmp_path):
    """Half of the layers are twice as fast; a decoder without a name needs its columns."""
    workload = "LLaMA3-8B decode [WaferLLM]"
    fields = REGION | {"grid": "420x420"}
    full = inference("a", workload, 1, **fields)
    half = inference("b", workload, 1, **fields | {"layers": "16"})
    mine = inference("c", "mine decode", 1, **fields | {"layers": "32", "ffn": "14336"})
    rates = [one.predicted for one in replay(tmp_path, full, half, mine).compared]
    assert rates == pytest.approx([rates[0], 2 * rates[0], rates[0]])


@pytest.mark.parametrize(
    ("workload", "fields", "reason"),
    [
        ("mine decode", REGION | {"grid": "420x420"}, "shape of the decoder"),
        ("LLaMA3-8B decode", REGION | {"grid": "420x300"}, "not a square"),
        ("LLaMA3-8B decode", REGION | {"grid": "900x900"}, "region-exceeds-wafer"),
        ("LLaMA3-8B decode [WaferLLM]", REGION, "not a square of PEs: empty"),
        ("LLaMA3-8B prefill", REGION | {"grid": "420x420", "seq_len": ""}, "no seq_len"),
        ("LLaMA3-8B prefill", REGION | {"grid": "420x420", "unit": "cycles"}, "not cycles"),
        (
            "LLaMA3-8B end-to-end",
            REGION | {"grid": "660^2", "seq_len": "2048/128"},
            "does not name the region",
        ),
        (
            "LLaMA3-8B end-to-end",
            REGION | {"grid": "prefill 660^2, decode 360^2"},
            "how many tokens go in",
        ),
        ("gpt-oss-120B", SERVICE | {"unit": "output tokens/s/user"}, "shape of the decoder"),
        (
            "Llama3.1-8B decode",
            SERVICE | {"unit": "output tokens/s/user", "dtype": "8-bit weights"},
            "16-bit",
        ),
        ("Llama3.1-70B, speculative decoding", SERVICE | {"unit": "tokens/s"}, "speculative"),
        ("Llama3.1-8B decode", SERVICE | {"unit": "s"}, "tokens per second are predicted"),
        ("LLaMA3-8B decode", REGION | {"grid": "420x420", "global_batch": "8"}, "one request"),
        ("LLaMA3-8B decode", REGION | {"grid": "420x420", "dtype": "int8"}, "16-bit"),
        ("inter-wafer activation transfer", SERVICE | {"unit": "us"}, "a bound"),
        ("LLaMA3-8B max decode length [shift KV]", REGION | {"unit": "tokens"}, "SRAM"),
        ("BERT-base inference, end-to-end batch latency", {"unit": "s per batch"}, "host"),
        ("latency per token relative to H100 baseline", {"unit": "%"}, "baseline"),
    ],
)
def test_what_cannot_be_replayed_is_listed_with_the_reason(tmp_path, workload, fields, reason):
    """Never a number that nothing stands behind, and never silence."""
    replays = replay(tmp_path, inference("x", workload, 1, **fields))
    assert not replays.compared
    (listed,) = replays.listed
    assert reason in listed.reason


def test_evaluation_rows_belong_to_the_replay_of_training(tmp_path):
    """Forward passes on streamed weights are no inference on regions (T0086, T0087)."""
    evaluation = inference("T0086", "GPT-3 111M eval", 1170.9, "samples/s", system="CS-3")
    (listed,) = replay(tmp_path, evaluation).listed
    assert listed.family is None
