"""Replays of set-up times."""

import pytest

from tests.support.reference_rows import row, write_rows
from timing.hardware import CS2, CS3, StartUpSpec
from validation.families.replays import Replays
from validation.families.setup import FAMILIES, FITS
from validation.rows.row import read_rows
from validation.rows.row_words import num_parameters

PROGRAMMING, WEIGHTS, CHECKPOINT = FITS
LLAMA2 = "send initial weights Llama2-7B (13.2-20.5)"


def setup_row(workload, value="1", system="CS-3", **fields):
    known = {"unit": "s", "phase": "setup", **fields}
    return row("T1", "training", workload=workload, value=value, system=system, **known)


@pytest.fixture
def read(tmp_path):
    """The one row of a file."""

    def read(*args, **fields):
        (found,) = read_rows(write_rows(tmp_path / "rows.csv", setup_row(*args, **fields)))
        return found

    return read


def predicted(seen):
    replays = Replays.of([seen], FAMILIES)
    assert not replays.failed
    (compared,) = replays.compared
    return compared.family, compared.predicted


def test_each_part_of_the_set_up_has_a_model(read):
    """Programming, initial weights and checkpoints, by the words of the row."""
    for workload, system, family, time_s in (
        ("device programming (85-136)", "CS-2", "set-up programming", 110),
        ("device programming", "CS-3", "set-up programming", 230),
        (LLAMA2, "CS-3", "set-up initial weights", 13.2),
        ("save checkpoint Llama2-7B (464-584)", "CS-3", "set-up checkpoint", 464),
    ):
        name, found_s = predicted(read(workload, system=system))
        assert name == family
        assert found_s == pytest.approx(time_s, rel=1e-6)


def test_a_software_release_before_2_sends_weights_slowly(read):
    """Whether the release stands in its column or behind the model's name."""
    new = predicted(read("send initial weights GPT-J 6B", system="CS-2"))[1]
    named = predicted(read("send initial weights GPT-J 6B (R1.7)", system="CS-2"))[1]
    stated = predicted(read("send initial weights GPT-J 6B", software="R1.7", system="CS-2"))[1]
    spelt = predicted(read("send initial weights GPT-J 6B", software="rel-1.9.1", system="CS-2"))[1]
    assert named == stated == spelt > 5 * new
    assert predicted(read("send initial weights GPT-J 6B (R2.0.3)", system="CS-2"))[1] == new


@pytest.mark.parametrize(
    ("workload", "parameters"),
    [
        ("send initial weights GPT-J 6B (R1.7)", 6.05e9),
        ("send initial weights Llama2-7B (13.2-20.5)", 6.74e9),
        ("save checkpoint Llama-3.1-8B", 8.03e9),
        ("send initial weights ESM-2 35M", 33.5e6),
        ("send initial weights ESM-2 650M", 651e6),
        ("save checkpoint GPT-3 111M", 111e6),
        ("save checkpoint GPT-3-style 1.3B", 1.3e9),
        ("save checkpoint Mistral-7B", 7.24e9),
        ("send initial weights GPT-J", 6.05e9),
        ("send initial weights GPT-2 XL", 1.558e9),
        ("save checkpoint DiT-XL/2", 675e6),
    ],
)
def test_the_size_of_a_model_follows_from_its_name(read, workload, parameters):
    """Published sizes where there are, else the size in the name."""
    assert num_parameters(read(workload)) == parameters


def test_a_stated_size_counts_more_than_a_name(read):
    """The column model_params_b is in billions."""
    assert num_parameters(read(LLAMA2, model_params_b="0.5")) == 5e8


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"workload": "save checkpoint of something"}, "no size of a model"),
        ({"workload": "compile Llama2-7B"}, "no calibration row"),
        ({"workload": LLAMA2, "system": "CS-1"}, "no numbers for a CS-1"),
        ({"workload": LLAMA2, "unit": "bytes"}, "in s or minutes, not in bytes"),
        ({"workload": "load checkpoint Llama2-7B"}, "no calibration row"),
    ],
)
def test_what_cannot_be_replayed_says_why(read, fields, reason):
    """The row is listed with the reason."""
    (listed,) = Replays.of([read(**fields)], FAMILIES).listed
    assert reason in listed.reason


@pytest.mark.parametrize(
    ("spelling", "plain"),
    [
        ("saving checkpoint Llama2-7B", "save checkpoint Llama2-7B"),
        ("save final checkpoint Llama2-7B", "save checkpoint Llama2-7B"),
        ("Programming the device", "device programming"),
        ("Sending initial weights Llama2-7B", LLAMA2),
    ],
)
def test_logs_and_people_word_it_differently(read, spelling, plain):
    """The same step of the set-up, in minutes if that is the unit."""
    assert predicted(read(spelling)) == predicted(read(plain))
    assert predicted(read(spelling, unit="min"))[1] == pytest.approx(predicted(read(plain))[1] / 60)


def test_other_phases_and_kinds_are_left_to_others(read, tmp_path):
    """A training row that names the same model is no set-up row, nor is a kernel row."""
    kernel = read_rows(write_rows(tmp_path / "kernels.csv", row()))
    for other in (read(LLAMA2, phase="train"), *kernel):
        assert not any(family.knows(other) for family in FAMILIES)


def test_the_fit_gives_the_constants_that_the_emulator_has(read):
    """From the published values of the calibration rows alone."""
    programming = [
        read("device programming (85-136)", "110", "CS-2"),
        read("device programming (200-245)", "230", "CS-3"),
    ]
    fitted = {
        **PROGRAMMING.fit(programming),
        **WEIGHTS.fit([read(LLAMA2, "13.2")]),
        **CHECKPOINT.fit([read("save checkpoint Llama2-7B (464-584)", "464")]),
    }
    spec = StartUpSpec()
    assert fitted == pytest.approx(
        {
            "CS2.programming_ps": CS2.programming_ps,
            "CS3.programming_ps": CS3.programming_ps,
            "StartUpSpec.transfer_bandwidth_bytes_per_s": spec.transfer_bandwidth_bytes_per_s,
            "StartUpSpec.storage_bandwidth_bytes_per_s": spec.storage_bandwidth_bytes_per_s,
        },
        rel=1e-6,
    )


def test_several_rows_are_met_on_average(read):
    """Two checkpoints at 100 and 50 MB/s per byte of state give a bandwidth between."""
    rows = [read("save checkpoint 1B", "120"), read("save checkpoint 1B", "240")]
    (bandwidth,) = CHECKPOINT.fit(rows).values()
    assert 50e6 < bandwidth < 100e6


def test_release_1_is_not_fitted_with_later_ones(read):
    """Its rows leave the rate of later software as it is."""
    old = read("send initial weights GPT-J 6B (R1.7)", "129", "CS-2")
    new = read(LLAMA2, "13.2")
    assert WEIGHTS.fit([old, new]) == WEIGHTS.fit([new])
