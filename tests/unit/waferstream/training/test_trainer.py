"""What a run does besides training: which checkpoints it writes, what it takes from one."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.files.event_files import scalars
from tests.support.nightly import nightly
from tests.support.runs.tiny_run import TINY, digest_of, run_here, write_run
from waferstream.checkpoint.reader import Reader
from waferstream.workload.models import build_model

SHORT: dict[str, Any] = {"init__loop": {"max_steps": 2}}
TRAIN = "--mode=train"


def test_the_initial_weights_are_kept_where_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, before the first step; who starts from them goes the same way."""
    keys: dict[str, Any] = {"init__checkpoint": {"steps": 2, "save_initial_checkpoint": True}}
    flags = [*write_run(tmp_path, **SHORT, **keys), TRAIN]
    code, out, err = run_here(flags, capsys)
    assert code == 0, err
    saved = sorted(path.name for path in (tmp_path / "model_dir").glob("*.mdl"))
    assert saved == ["checkpoint_0.mdl", "checkpoint_2.mdl"]
    initial = tmp_path / "model_dir" / "checkpoint_0.mdl"
    assert Reader(initial).objects["global_step"] == 0
    _, again, _ = run_here([*flags, f"--checkpoint_path={initial}"], capsys)
    assert digest_of(again) == digest_of(out)
    assert len(list((tmp_path / "model_dir").glob("checkpoint_0*.mdl"))) == 1


def test_weights_that_are_not_finite_are_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loss of the last step was fine. The same command does not continue from them."""
    keys: dict[str, Any] = {"init__loop": {"max_steps": 1}, "init__checkpoint": {"steps": 1}}
    divergent = {"AdamW": {"lr": 1e30, "weight_decay": 1e30}}
    code, _, err = run_here(write_run(tmp_path, **keys, init__optimizer=divergent), capsys)
    assert code == 1
    assert "[checkpoint-not-finite]" in err
    code, out, _ = run_here(write_run(tmp_path, **keys), capsys)
    assert code == 0
    assert "Skipping checkpoint" in out
    assert "Step=1" in out


def test_checkpoint_has_all_names_and_the_digest_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output layer is tied; the digest of a finished run counts its weight once."""
    flags = [*write_run(tmp_path, **SHORT), TRAIN]
    _, out, _ = run_here(flags, capsys)
    names = Reader(tmp_path / "model_dir" / "checkpoint_2.mdl").names("model")
    model = build_model(TINY["trainer"]["init"]["model"], seed=0)
    assert set(names) == set(model.state_dict())
    assert len(names) > len(list(model.named_parameters()))
    _, again, _ = run_here(flags, capsys)
    assert "Nothing left to train" in again
    assert digest_of(again) == digest_of(out)


def test_the_weights_alone_start_a_run_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--load_checkpoint_states model``: at step 0, with a fresh optimizer."""
    flags = [*write_run(tmp_path, **SHORT), TRAIN]
    assert run_here(flags, capsys)[0] == 0
    code, out, _ = run_here([*flags, "--load_checkpoint_states=model"], capsys)
    assert code == 0
    assert "checkpoint_2.mdl, step 0" in out
    assert "Step=2" in out


@pytest.mark.parametrize(("layers", "word"), [(1, "unexpected"), *nightly((3, "missing"))])
def test_a_checkpoint_of_another_model_is_taken_on_request_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], layers: int, word: str
) -> None:
    """The message names the weights; with the flag it is a warning in the run's log."""
    assert run_here([*write_run(tmp_path, **SHORT), TRAIN], capsys)[0] == 0
    flags = [
        *write_run(tmp_path, **SHORT, init__model__num_hidden_layers=layers),
        TRAIN,
        "--load_checkpoint_states=model",
    ]
    code, _, err = run_here(flags, capsys)
    assert code == 1
    assert f"{word}: " in err
    assert "disable_strict_checkpoint_loading" in err
    code, out, err = run_here([*flags, "--disable_strict_checkpoint_loading"], capsys)
    assert code == 0, err
    assert f"WARNING: The checkpoint {tmp_path}" in out
    assert word in (tmp_path / "model_dir" / "latest_run.log").read_text()


@pytest.mark.parametrize("steps", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_changed_model_must_take_a_folder_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], steps: int
) -> None:
    """Before anything is compiled, and also where no step is left to train."""
    assert run_here([*write_run(tmp_path, **SHORT), TRAIN], capsys)[0] == 0
    changed = write_run(tmp_path, init__loop={"max_steps": steps}, init__model__hidden_size=32)
    code, out, err = run_here([*changed, TRAIN], capsys)
    assert code == 1
    assert "[run-changed]" in err
    assert "a model_dir of its own begins anew" in err
    assert "Compiling" not in out
    code, out, err = run_here([*changed, "--validate_only"], capsys)
    assert code == 0, err  # trains nothing, so it leaves the checkpoint alone
    assert "Compile was successful!" in out
    other = f"--model_dir={tmp_path / 'other'}"
    code, _, err = run_here([*changed[:-1], other, TRAIN], capsys)
    assert code == 0, err


@pytest.mark.parametrize(
    ("mode", "sections", "missing"),
    [
        ("eval", {}, "trainer.validate"),
        ("eval_all", {}, "trainer.validate_all"),
        ("eval_all", {"validate_all": {}}, "trainer.validate_all.val_dataloaders"),
    ],
)
def test_mode_needs_its_sections(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    mode: str,
    sections: dict[str, Any],
    missing: str,
) -> None:
    """What the file lacks is named before anything is written, with the modes that it has."""
    code, _, err = run_here([*write_run(tmp_path, **sections), f"--mode={mode}"], capsys)
    assert code == 1
    assert f"mode {mode} requires {missing} [missing-key]" in err
    assert "--mode train or train_and_eval" in err
    assert not (tmp_path / "model_dir").exists()


def test_all_checkpoints_are_evaluated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On every data set, one after the other, in one process."""
    data = {
        "data_processor": "DummyDataProcessor",
        "batch_size": 8,
        "max_sequence_length": 16,
        "vocab_size": 256,
    }
    flags = write_run(
        tmp_path,
        init__loop={"max_steps": 4, "eval_steps": 1},
        validate_all={"val_dataloaders": [data, {**data, "batch_size": 16}]},
    )
    assert run_here([*flags, "--mode=train"], capsys)[0] == 0
    code, out, err = run_here([*flags, "--mode=eval_all"], capsys)
    assert code == 0, err
    steps = [line.split("GlobalStep=")[1][0] for line in out.splitlines() if "| Eval" in line]
    assert steps == ["2", "2", "4", "4"]


def test_mode_eval_evaluates_one_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The newest one, on the data of ``trainer.validate``, without a step of training."""
    data = {
        "data_processor": "DummyDataProcessor",
        "batch_size": 8,
        "max_sequence_length": 16,
        "vocab_size": 256,
    }
    flags = write_run(
        tmp_path, init__loop={"max_steps": 4, "eval_steps": 1}, validate={"val_dataloader": data}
    )
    _, trained, _ = run_here([*flags, "--mode=train"], capsys)
    code, out, err = run_here([*flags, "--mode=eval"], capsys)
    assert code == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("| Eval")]
    assert "GlobalStep=4, Batch=1," in line
    assert "| Train" not in out
    assert digest_of(out) == digest_of(trained)


STATE_SETS = {
    "all but the step": "model,optimizer,schedulers,dataloader,grad_scaler",
    "old data": "model,optimizer,lr_scheduler",
    "old rate": "model,optimizer,dataloader",
    "new moments": "model,schedulers,dataloader",
}


def test_each_state_is_restored_or_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With all that matters the weights are those of one run; each state left out changes them."""
    line = {"initial_learning_rate": 0.02, "end_learning_rate": 0.001, "total_iters": 4}
    keys: dict[str, Any] = {
        "init__model__dropout_rate": 0.0,
        "init__schedulers": [{"LinearLR": line}],
        "init__checkpoint": {"steps": 2},
    }
    flags = [*write_run(tmp_path, **keys, init__loop={"max_steps": 4}), TRAIN]
    digests = {"one run": digest_of(run_here(flags, capsys)[1])}
    half = f"--checkpoint_path={tmp_path / 'model_dir' / 'checkpoint_2.mdl'}"
    states = Reader(tmp_path / "model_dir" / "checkpoint_2.mdl").objects
    assert states["dataloader"] == {"batches": 2, "samples_streamed": 16}
    assert [state["last_epoch"] for state in states["schedulers"]] == [2]
    assert states["optimizer"]["updates"] == 2
    for name, chosen in STATE_SETS.items():
        again = [*flags, half, f"--load_checkpoint_states={chosen}", "--max_steps=2"]
        code, out, err = run_here(again, capsys)
        assert code == 0, err
        digests[name] = digest_of(out)
    assert digests.pop("all but the step") == digests["one run"]
    assert len(set(digests.values())) == len(digests)


def test_norms_of_every_parameter_are_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At log steps; that of all gradients agrees with the norm that clipping reports."""
    callbacks = [{"ComputeNorm": {}}, {"NaNChecker": {"num_steps": 1}}]
    flags = write_run(tmp_path, **SHORT, init__callbacks=callbacks, init__precision={})
    code, _, err = run_here([*flags, "--mode=train"], capsys)
    assert code == 0, err
    (events,) = tmp_path.rglob("events.out.tfevents.*")
    logged = {name: value for name, value, step in scalars(events) if step == 2}
    names = [
        name for name, _ in build_model(TINY["trainer"]["init"]["model"], 0).named_parameters()
    ]
    parts = [logged[f"per_layer_grad_norm/{name}"] for name in names]
    assert sum(part**2 for part in parts) ** 0.5 == pytest.approx(logged["model_wise_grad_norm"])
    assert all(logged[f"per_layer_params_norm/{name}"] > 0 for name in names)


def test_nan_checker_names_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A learning rate that is far too large overflows; the loss need not be the first to show it."""
    keys: dict[str, Any] = {"init__optimizer": {"SGD": {"lr": 1e38}}, **SHORT}
    flags = write_run(tmp_path, **keys, init__callbacks=[{"NaNChecker": {}}])
    code, _, err = run_here([*flags, "--mode=train"], capsys)
    assert code == 1
    assert re.search(r"step \d+, layer .* on (csx|wgt)-\d", err), err


def test_listeners_of_the_file_hear_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their numbers are curves, dumps are files, and the weights stay as they are."""
    flags = write_run(tmp_path, **SHORT)
    _, plain, _ = run_here([*flags, "--mode=train", f"--model_dir={tmp_path / 'plain'}"], capsys)
    names = {"tensor_names": ["*ln_f*", "*norm*"]}
    callbacks: list[dict[str, Any]] = [
        {"NormTensorListener": {"listener_name": "norms", **names}},
        {"SummaryTensorListener": {"listener_name": "all", **names}},
        {"DumpActivations": {}},
        {"LogInputSummaries": {}},
    ]
    flags = write_run(tmp_path, **SHORT, init__callbacks=callbacks)
    code, out, err = run_here([*flags, "--mode=train"], capsys)
    assert code == 0, err
    assert digest_of(out) == digest_of(plain)
    (events,) = (tmp_path / "model_dir").rglob("events.out.tfevents.*")
    logged = {name for name, _, step in scalars(events) if step == 2}
    assert all(value > 0 for name, value, _ in scalars(events) if name == "train/loss")
    kinds = {tuple(n.split("/")[::2]) for n in logged if n.startswith(("norms/", "all/"))}
    wanted = {("all", key) for key in ("mean", "std", "min", "max")}
    assert kinds == {("norms", "norm"), *wanted}
    assert any(name.endswith(".bwd/norm") for name in logged)
    arrays = np.load(tmp_path / "model_dir" / "act_dumps" / "act_dump_2.npz")
    assert {len(arrays[name]) for name in arrays} == {8}  # the batch, also in the output head
    (inputs,) = (tmp_path / "model_dir").glob("*/cs_events/input")
    batch = {name: np.load(inputs / name / "2.npy") for name in ("input_ids", "labels")}
    np.testing.assert_array_equal(batch["input_ids"][:, 1:], batch["labels"][:, :-1])
    assert batch["input_ids"].shape == (8, 16)
    (listed,) = (tmp_path / "model_dir").glob("*/executors/000001/available_tensor_names.txt")
    assert re.search(r"^head\.fwd, \(\d+, 16, 256\), torch\.\w+$", listed.read_text(), re.M)
