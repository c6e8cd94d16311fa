"""Replays of training throughput: from a row to a run of the emulated cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.reference_rows import row, write_rows
from timing.hardware import CS2, CS3
from validation.families.replay import CannotReplay
from validation.families.training import FAMILIES
from validation.families.training_runs import run_of, wafer_of
from validation.families.workloads import (
    loading_of,
    micro_batch_of,
    model_of,
    sequence_length,
)
from validation.fit.training import fit_releases, fit_wafer
from validation.published_programs.releases import software_speed
from validation.rows.row import Row, read_rows
from wsc.core.errors import ConfigError
from wsc.core.loading import Loading

TINY = {"workload": "GPT-2 tiny", "hidden": "64", "layers": "2", "heads": "2", "vocab": "128"}


@pytest.fixture
def read(tmp_path: Any) -> Any:
    """Rows of a file, from the columns in which they differ from a tiny GPT on one CS-2."""

    def read(*changes: dict[str, str]) -> tuple[Row, ...]:
        common = TINY | {
            "system": "CS-2", "phase": "train", "unit": "samples/s", "seq_len": "32",
            "global_batch": "64", "num_csx": "1", "use": "calibration",
        }  # fmt: skip
        rows = (row(f"T{i}", "training", **(common | c)) for i, c in enumerate(changes))
        return read_rows(write_rows(tmp_path / "rows.csv", *rows))

    return read


def test_a_row_states_what_differs_from_the_zoos_model(read: Any) -> None:
    """Sizes come from columns, the feed-forward is four times as wide unless stated."""
    gpt, bert = read({}, {"workload": "BERT-base pre-training", "ffn": "200", "seq_len": "128"})
    assert model_of(gpt)["name"] == "gpt3"
    assert model_of(gpt)["filter_size"] == 256
    assert (model_of(bert)["name"], model_of(bert)["filter_size"]) == ("bert", 200)
    assert sequence_length(bert) == 128


@pytest.mark.parametrize("text", ["2048", "2,048", "2048 tokens", "MSL 2048", "2048 (MSL)"])
def test_a_length_may_stand_in_words_that_add_nothing(read: Any, text: str) -> None:
    """As tables and logs write it; the model takes at least as many."""
    (seen,) = read({"seq_len": text})
    assert sequence_length(seen) == 2048
    assert model_of(seen)["max_position_embeddings"] == 2048


@pytest.mark.parametrize(
    ("text", "side"), [("256 latent patches (256px, patch 2x2)", 32), ("512 px", 64), ("1024", 64)]
)
def test_an_image_is_as_large_as_the_row_says(read: Any, text: str, side: int) -> None:
    """In pixels, of which the autoencoder leaves an eighth along each side, or in patches."""
    (seen,) = read({"workload": "DiT-2B", "seq_len": text})
    assert model_of(seen)["vae"]["latent_size"] == [side, side]
    assert sequence_length(seen) is None


def test_heads_of_llama_3_share_keys_and_values(read: Any) -> None:
    """Those of LLaMA-2 7B have their own."""
    new, old = read({"workload": "Llama-3-8B"}, {"workload": "Llama2-7B"})
    assert model_of(new)["extra_attention_params"] == {"num_kv_groups": 8}
    assert "extra_attention_params" not in model_of(old)


@pytest.mark.parametrize(
    ("unit", "of_samples"),
    [("samples/s", 1), ("tokens/s", 32), ("samples/s/CSX", 1 / 2), ("steps/s", 1 / 64)],
)
def test_throughput_is_predicted_in_the_units_that_papers_use(
    read: Any, unit: str, of_samples: float
) -> None:
    """Of samples, tokens or steps, of all systems or of each."""
    plain, other = read({"num_csx": "2"}, {"num_csx": "2", "unit": unit})
    predict = FAMILIES[0].predict
    assert predict(other) == pytest.approx(of_samples * predict(plain))


def test_a_step_is_predicted_in_seconds_and_images_have_no_tokens(read: Any) -> None:
    """The batch over its rate; a unit that says nothing of a run of images is refused."""
    plain, step, image = read(
        {},
        {"unit": "s/step"},
        {"workload": "DiT", "vocab": "", "seq_len": "64", "unit": "tokens/s"},
    )
    predict = FAMILIES[0].predict
    assert predict(step) == pytest.approx(64 / predict(plain))
    with pytest.raises(CannotReplay, match="no tokens"):
        predict(image)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"workload": "UNet"}, "no model of 'UNet'"),
        ({"workload": "RoBERTa-large"}, "no model of 'RoBERTa-large'"),
        ({"workload": "GPT-NeoX 20B"}, "no model of 'GPT-NeoX 20B'"),
        ({"hidden": ""}, "hidden size, layers or heads"),
        ({"seq_len": "not printed"}, "sequence length is not stated"),
        ({"workload": "DiT", "seq_len": ""}, "size of the image is not stated"),
        ({"workload": "DiT", "seq_len": "200"}, "size of the image is not stated"),
        ({"global_batch": ""}, "batch size is not stated"),
        ({"dtype": "fp32"}, "16 bits are modelled, not fp32"),
        ({"sparsity_pct": "75"}, "sparse weights"),
        ({"system": "A100"}, "no numbers for a A100"),
    ],
)
def test_what_a_row_does_not_tell_is_the_reason_why_not(
    read: Any, change: dict[str, str], reason: str
) -> None:
    """Nothing is guessed."""
    (seen,) = read(change)
    with pytest.raises(CannotReplay, match=reason):
        run_of(seen, "train")


def test_a_row_is_fed_as_the_public_configuration_says(read: Any) -> None:
    """BERT by eight processes that mask words, ESM-2 by one from many files, DiT by two workers."""
    bert, esm, dit = read(*({"workload": name} for name in ("BERT-base", "ESM-2 35M", "DiT-2B")))
    assert loading_of(bert) == Loading("csv", num_workers=8, num_workers_per_csx=1)
    assert loading_of(esm) == Loading("hdf5", 0, num_workers_per_csx=1, num_files=2101)
    assert loading_of(dit) == Loading("npz", num_workers=8, num_workers_per_csx=2)


def test_a_micro_batch_is_taken_from_the_configuration_of_that_very_model(read: Any) -> None:
    """ESM-2 35M ran in micro-batches of 64; one of another size, or a BERT, may do otherwise."""
    small = {"workload": "ESM-2", "hidden": "480", "layers": "12", "heads": "20"}
    esm, other, bert = read(small, small | {"layers": "30"}, {"workload": "BERT-base"})
    assert [micro_batch_of(row) for row in (esm, other, bert)] == [64, None, None]


def test_a_row_runs_under_its_release(read: Any) -> None:
    """A release that is stated decides the speed; one before all fitted rows is refused."""
    plain, stated, other, old = read(
        {}, {"software": "R2.3.0"}, {"system": "CS-3", "software": "R2.6"}, {"software": "R1.7.1"}
    )
    assert wafer_of(plain) == CS2
    assert wafer_of(stated).software_speed == software_speed("CS-2", (2, 1, 1))
    assert wafer_of(other) == CS3
    with pytest.raises(ConfigError):
        wafer_of(old)


def test_the_batch_is_cut_evenly_over_the_systems(read: Any) -> None:
    """In as few rounds as fit, or of the size that is stated; half the rounds, half the time."""
    whole, one, two = read(
        {}, {"micro_batch_per_csx": "8"}, {"micro_batch_per_csx": "8", "num_csx": "2"}
    )
    assert run_of(whole, "train").micro_batch_size == 64
    runs = [run_of(seen, "train") for seen in (one, two)]
    assert [run.num_rounds for run in runs] == [8, 4]
    assert runs[1].samples_per_s == pytest.approx(2 * runs[0].samples_per_s, rel=0.02)


def test_evaluation_is_faster_than_training(read: Any) -> None:
    """It leaves out the backward pass."""
    (seen,) = read({})
    assert run_of(seen, "eval").samples_per_s > 1.5 * run_of(seen, "train").samples_per_s


@pytest.mark.parametrize(
    ("change", "family"),
    [
        ({}, "training CS-2"),
        ({"system": "CS-3"}, "training CS-3"),
        ({"phase": "inference", "workload": "GPT-3 111M eval"}, "evaluation"),
        ({"phase": "inference", "workload": "GPT-3 111M evaluation"}, "evaluation"),
        ({"phase": "eval", "workload": "GPT-3 111M"}, "evaluation"),
    ],
)
def test_each_kind_of_row_has_its_family(read: Any, change: dict[str, str], family: str) -> None:
    """And no other."""
    (seen,) = read(change)
    assert [f.name for f in FAMILIES if f.knows(seen)] == [family]


def test_the_fit_finds_the_constants_that_made_the_rows(read: Any) -> None:
    """Rows that the model itself predicts with other constants are fitted to those constants."""
    made = CS2.model_copy(
        update={
            "kernel_efficiency": 0.5,
            "attention_efficiency": 0.25,
            "segment_overhead_ps": 10**9,
        }
    )
    shapes = [
        {"seq_len": "2048", "hidden": "512", "heads": "8"},
        {"seq_len": "2048", "hidden": "512", "heads": "8", "global_batch": "256"},
        {"seq_len": "128", "hidden": "1024", "heads": "16", "global_batch": "4096"},
        {"seq_len": "4096", "hidden": "256", "heads": "4", "global_batch": "128"},
    ]
    shapes = [shape | {"workload": "GPT-J tiny"} for shape in shapes]  # has the fastest loader
    values = [run_of(seen, "train", made).samples_per_s for seen in read(*shapes)]
    rows = read(*(shape | {"value": str(v)} for shape, v in zip(shapes, values, strict=True)))
    found = fit_wafer(rows)
    assert found["CS2.kernel_efficiency"] == pytest.approx(0.5, rel=0.03)
    assert found["CS2.attention_efficiency"] == pytest.approx(0.25, rel=0.03)
    assert found["CS2.segment_overhead_ps"] == pytest.approx(10**9, rel=0.03)


def test_a_release_is_as_fast_as_its_rows_say(read: Any) -> None:
    """Twice what the model predicts is a speed of two."""
    (plain,) = read({})
    rate = run_of(plain, "train").samples_per_s
    (seen,) = read({"software": "R2.1.1", "value": str(2 * rate)})
    assert fit_releases([seen]) == {"ReleaseSpeeds.cs2_r2_1_1": pytest.approx(2, rel=0.01)}
