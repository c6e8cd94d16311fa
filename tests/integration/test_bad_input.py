"""Bad input ends with one clear message and a non-zero exit code, and leaves no partial files."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from tests.support.runs.tiny_run import digest_of, run_here, write_run

TRAIN = "fit__train_dataloader__"
EVAL = "fit__val_dataloader__"
WRONG_WORDS = {
    "data_processor": "DummyDataProcessor",
    "batch_size": 8,
    "max_sequence_length": 16,
    "vocab_size": 5000,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"init__model__hiden_size": 16}, ["hiden_size", "hidden_size"]),
        ({"init__model__hidden_size": 17}, ["17", "num_heads"]),
        ({"init__optimizer": {"AdamX": {"lr": 0.1}}}, ["AdamX", "Adam"]),
        ({"init__precision__fp16_type": "float8"}, ["fp16_type", "bfloat16"]),
        ({"init__loop__max_steps": -3}, ["max_steps", "-3"]),
        ({TRAIN + "path": "missing.txt"}, ["missing.txt"]),
        ({TRAIN + "batch_size": 100_000}, ["batch"]),
        ({TRAIN + "data_processor": "TextProcessor"}, ["TextDataProcessor"]),
        ({"init__model__vocab_size": 100}, ["vocab_size", "100"]),
        ({EVAL + "splitt": "eval"}, ["val_dataloader[0]", "did you mean 'split'?"]),
        ({EVAL + "path": "missing.txt"}, ["missing.txt"]),
        ({EVAL + "batch_size": 5000}, ["split eval", "batch_size 5000"]),
        ({"fit__val_dataloader": WRONG_WORDS}, ["val_dataloader[0]", "below 256"]),
        ({"init__optimizer": {"SGD": {"lr": 1e38}}}, ["finite", "learning rate"]),
        (
            {"init__callbacks": [{"ScopedTrainFlags": {"csx.performance.micro_batch_size": 0}}]},
            ["micro_batch_size", "greater than 0"],
        ),
    ],
)
def test_wrong_configuration_or_data_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], words: list[str]
) -> None:
    """A wrong key, value or dataset is named with allowed or similar ones before training."""
    code, _, err = run_here(write_run(tmp_path, **changes), capsys)
    assert code == 1
    for word in words:
        assert word in err
    assert not list((tmp_path / "model_dir").glob("*.mdl"))


def test_duplicate_key_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A duplicate key is refused with its line."""
    flags = write_run(tmp_path)
    params = tmp_path / "params.yaml"
    params.write_text(params.read_text() + "trainer: {}\n")
    code, _, err = run_here(flags, capsys)
    assert code == 1
    assert "trainer" in err
    assert "twice" in err or "duplicate" in err


def test_missing_params_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The path of a missing params file is named."""
    code, _, err = run_here([f"--params={tmp_path / 'none.yaml'}"], capsys)
    assert code == 1
    assert "none.yaml" in err


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
def test_gpu_without_a_device_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names what is missing."""
    code, _, err = run_here([*write_run(tmp_path), "GPU"], capsys)
    assert (code, "[no-cuda-device]" in err) == (1, True)


def test_simulation_of_another_device_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is emulated there."""
    code, _, err = run_here([*write_run(tmp_path), "CPU", "--simulate"], capsys)
    assert (code, "[device-not-emulated]" in err) == (1, True)


def test_batch_smaller_than_systems_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A batch of 8 cannot be shared by 9 systems."""
    code, _, err = run_here([*write_run(tmp_path), "--num_csx=9"], capsys)
    assert code == 1
    assert "num_csx 9" in err


def test_evaluation_batch_smaller_than_systems_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The evaluation after the training is checked before the training."""
    flags = write_run(tmp_path, fit__val_dataloader__batch_size=2)
    code, out, err = run_here([*flags, "--num_csx=4"], capsys)
    assert code == 1
    assert "batch_size 2, num_csx 4" in err
    assert "Compiling" not in out


def test_unwritable_trace_is_refused_before_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trace file is checked before training starts."""
    missing = tmp_path / "missing" / "trace.json"
    code, out, err = run_here([*write_run(tmp_path), f"--trace={missing}"], capsys)
    assert code == 1
    assert "--trace" in err
    assert "Compiling" not in out
    assert not (tmp_path / "model_dir").exists()


def test_model_larger_than_memoryx_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A MemoryX of one kilobyte is too small; the message has both numbers."""
    flags = write_run(tmp_path)
    small = {"runtime": {"kind": "local"}, "machine": {"memoryx": {"dram_bytes": 1024}}}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(small))
    code, _, err = run_here(flags, capsys)
    assert code == 1
    assert "1.0 KiB" in err


@pytest.mark.parametrize(
    ("sram_bytes", "remedy"),
    [(1000, "raise it or lower machine.system.fabric"), (3_549_601_000, "not even one sample")],
)
def test_activations_larger_than_sram_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sram_bytes: int, remedy: str
) -> None:
    """The activations of a micro-batch must fit the SRAM beside code (4,176 B of each PE)."""
    flags = write_run(tmp_path)
    system = {"name": "CS-2", "sram_bytes": sram_bytes}
    small = {"runtime": {"kind": "local"}, "machine": {"system": system}}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(small))
    code, _, err = run_here(flags, capsys)
    assert code == 1
    assert "SRAM" in err
    assert remedy in err


def test_damaged_checkpoint_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A truncated checkpoint that the command names is refused by name."""
    flags = write_run(tmp_path)
    assert run_here(flags, capsys)[0] == 0
    newest = tmp_path / "model_dir" / "checkpoint_8.mdl"
    newest.write_bytes(newest.read_bytes()[:1000])
    code, _, err = run_here([*flags, f"--checkpoint_path={newest}", "--max_steps=10"], capsys)
    assert code == 1
    assert "checkpoint_8.mdl" in err


def test_damaged_newest_checkpoint_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Automatic resume takes the newest checkpoint that can be read, and ends with the same bits."""
    flags = write_run(tmp_path)
    code, out, _ = run_here(flags, capsys)
    whole = digest_of(out)
    newest = tmp_path / "model_dir" / "checkpoint_8.mdl"
    newest.write_bytes(newest.read_bytes()[:1000])
    code, out, _ = run_here(flags, capsys)
    assert code == 0
    assert "checkpoint_6.mdl" in out
    assert digest_of(out) == whole


def test_finished_run_has_nothing_left_to_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A finished run prints the same hash and succeeds."""
    flags = write_run(tmp_path)
    first = digest_of(run_here(flags, capsys)[1])
    code, out, text = run_here([*flags, "--json"], capsys)
    assert code == 0
    assert "Nothing left to train" in text
    assert digest_of(text) == json.loads(out)["weights_sha256"] == first


@pytest.mark.parametrize("flag", ["--compile_only", "--validate_only"])
def test_compile_and_validate_only_execute_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    """The run stops after the compiler without checkpoint or hash, and reports its programs."""
    code, out, text = run_here([*write_run(tmp_path), flag, "--json"], capsys)
    assert code == 0
    assert "Compile was successful!" in text
    assert ("stream weights" in text) == (flag == "--compile_only")
    assert "SHA-256" not in text
    summary = json.loads(out)
    assert summary == json.loads((tmp_path / "model_dir/run_summary.json").read_text())
    train, evaluation = summary["programs"]
    assert (train["mode"], evaluation["mode"]) == ("train", "eval")
    assert train["kernels"]["matmul"] > evaluation["kernels"]["matmul"] > 0
    assert sum(each["gradient_bytes"] for each in train["segments"]) == 4 * train["parameters"]
    assert 0 < train["sram"]["peak_bytes"] < train["sram"]["capacity_bytes"]
    assert not list((tmp_path / "model_dir").glob("*.mdl"))
