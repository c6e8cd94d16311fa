"""``--simulate`` against a training run, and its errors."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

import modelzoo
from tests.support.models.tiny_dino import DINO, SPREAD, write_images
from tests.support.runs.tiny_run import run_here, write_run

Capture = pytest.CaptureFixture[str]
MICRO_BATCH = "init__callbacks"
LOADING: dict[str, Any] = {
    "fit__train_dataloader__loader": "csv",
    "fit__train_dataloader__num_workers": 3,
    "init__backend": {"cluster_config": {"num_workers_per_csx": 2}},
}


def of_size(size: object) -> dict[str, Any]:
    """Return changes of ``write_run`` that set the micro-batch of training."""
    return {MICRO_BATCH: [{"ScopedTrainFlags": {"csx.performance.micro_batch_size": size}}]}


@pytest.mark.parametrize(
    ("num_csx", "size", "layers"),
    [pytest.param(1, 2, 2, marks=pytest.mark.nightly), (3, 1, 8)],
)
def test_simulate_predicts_the_emulated_time_of_a_run(
    tmp_path: Path, capsys: Capture, num_csx: int, size: int, layers: int
) -> None:
    """Two steps, to the picosecond; also if some systems run out of micro-batches.

    Of eight layers, five are captured. With dropout, attention copies its operands, except those of
    a single sample.
    """
    changes = {**of_size(size), **LOADING, "init__model__num_hidden_layers": layers}
    changes["init__model__attention_dropout_rate"] = 0.1
    flags = [*write_run(tmp_path, **changes), f"--num_csx={num_csx}"]
    code, out, err = run_here([*flags, "--simulate"], capsys, draws=True)
    assert code == 0, err
    assert "Weights SHA-256" not in out
    assert not list((tmp_path / "model_dir").glob("*.mdl"))
    folder = tmp_path / "model_dir" / "simulation"
    simulation = json.loads((folder / "simulation.json").read_text())
    point = simulation["points"][-1]
    assert (point["num_csx"], point["micro_batch_size"]) == (num_csx, size)
    assert json.loads((folder / "step_trace.json").read_text())["traceEvents"]
    for name in ("simulation.png", "wafer.png", "simulation.html"):
        assert (folder / name).stat().st_size > 10_000
    assert all(curve["extrapolated"] for curve in simulation["gpus"]["curves"])
    assert (folder / "gpus.png").exists()

    assert run_here([*flags, "--mode=train", "--num_steps=2"], capsys)[0] == 0
    summary = json.loads((tmp_path / "model_dir" / "run_summary.json").read_text())
    steps_ps = point["prediction"]["steps_ps"]
    first, second = (*steps_ps, steps_ps[-1])[:2]
    assert summary["emulated"]["total_ps"] == first + second


@pytest.mark.parametrize("what", ["--simulate", "--mode=train"])
def test_params_and_cluster_may_be_pipes(tmp_path: Path, capsys: Capture, what: str) -> None:
    """As a shell's process substitution makes them: each is read once."""
    *_, model_dir = write_run(tmp_path, init__loop={"max_steps": 1})
    with ExitStack() as stack:
        flags = []
        for name in ("params", "cluster"):
            pipe, end = os.pipe()
            stack.callback(os.close, pipe)
            os.write(end, (tmp_path / f"{name}.yaml").read_bytes())
            os.close(end)
            flags.append(f"--{name}=/dev/fd/{pipe}")
        code, _, err = run_here([*flags, model_dir, what], capsys)
    assert code == 0, err


@pytest.mark.nightly
def test_groups_of_samples_are_captured_whole(tmp_path: Path, capsys: Capture) -> None:
    encoder = {
        "vocab_size": 32,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_heads": 2,
        "filter_size": 16,
        "max_position_embeddings": 8,
    }
    changes: dict[str, Any] = {
        "init__model": {"name": "dpr", "encoder": encoder, "group_size": 4},
        "fit__train_dataloader": {
            "data_processor": "DPRHDF5DataProcessor",
            "data_dir": "none",
            "batch_size": 32,
        },
        **of_size(8),
    }
    code, out, err = run_here([*write_run(tmp_path, **changes), "--simulate"], capsys)
    assert code == 0, err
    assert "Effective batch size is 32: 4 x micro-batch 8" in out
    flags = write_run(tmp_path, **(changes | of_size(2)))
    code, _, err = run_here([*flags, "--simulate"], capsys)
    assert code == 1
    assert "[group-cut]" in err


@pytest.mark.nightly
def test_simulate_predicts_the_emulated_time_of_averages(tmp_path: Path, capsys: Capture) -> None:
    """Of a teacher that averages its student, with losses over groups of samples."""
    images = write_images(tmp_path / "images")
    dino = DINO | {"losses": [*DINO["losses"], SPREAD]}
    data = {"fit__train_dataloader": images, "fit__val_dataloader": images}
    changes: dict[str, Any] = {"init__model": dino, **data, **of_size(2)}
    flags = [*write_run(tmp_path, **changes), "--num_csx=2"]
    code, _, err = run_here([*flags, "--simulate"], capsys)
    assert code == 0, err
    folder = tmp_path / "model_dir"
    simulation = json.loads((folder / "simulation" / "simulation.json").read_text())
    assert run_here([*flags, "--mode=train", "--num_steps=2"], capsys)[0] == 0
    summary = json.loads((folder / "run_summary.json").read_text())
    steps_ps = simulation["points"][-1]["prediction"]["steps_ps"]
    predicted_ps = steps_ps[0] + (*steps_ps, steps_ps[-1])[1]
    assert summary["emulated"]["total_ps"] == predicted_ps


def test_sweep_needs_no_data_and_reuses_the_capture(tmp_path: Path, capsys: Capture) -> None:
    """Without data, shapes come from the model."""
    flags = [
        *write_run(tmp_path, compiles=True),
        "--simulate",
        "--sweep=2-8:x2",
        "--token_budget=1e6",
    ]
    flags += ["--system", "CS-2", "CS-3", "--batch_size=16"]
    (tmp_path / "text.txt").unlink()
    code, out, err = run_here(flags, capsys)
    assert code == 0, err
    assert "Capturing the step" in out
    assert "1M tokens take" in out
    first = json.loads((tmp_path / "model_dir/simulation/simulation.json").read_text())
    assert [point["num_csx"] for point in first["points"]] == [1, 2, 4, 8]
    assert first["configuration"]["machine"]["system"]["name"] == "CS-2"
    assert first["batch_size"] == 16
    (other,) = first["others"]
    assert other["system"] == "CS-3"
    assert other["points"][0]["emulated"]["step_ps"] < first["points"][0]["emulated"]["step_ps"]
    assert first["simulation"]["as_published"]

    assert run_here([*flags, "--weak_scaling", "--activation_zeros"], capsys)[0] == 0
    weak = json.loads((tmp_path / "model_dir/simulation/simulation.json").read_text())
    assert (first["weak"], weak["weak"]) == (False, True)
    assert (first["zeros"], weak["zeros"]["weights"]) == (None, "initial weights")
    page = (tmp_path / "model_dir/simulation/simulation.html").read_text()
    assert "Zeros among activations" in page
    rates = [curve["points"][-1]["emulated"]["samples_per_s"] for curve in (first, weak)]
    assert rates[1] > rates[0]

    code, out, _ = run_here(flags, capsys)
    again = json.loads((tmp_path / "model_dir/simulation/simulation.json").read_text())
    assert code == 0
    assert "Capturing the step" not in out
    assert again["points"] == first["points"]

    code, out, _ = run_here([*flags, "--json"], capsys)
    assert code == 0
    assert json.loads(out)["points"] == first["points"]


@pytest.mark.parametrize(
    ("section", "key", "values"),
    [
        pytest.param(
            "memoryx", "bandwidth_bytes_per_s", (10**11, 10**6), marks=pytest.mark.nightly
        ),
        ("input", "csv", ({"sample_ps": 0}, {"sample_ps": 10**12})),
    ],
)
def test_simulate_reads_the_machine_of_cluster_yaml(
    tmp_path: Path, capsys: Capture, section: str, key: str, values: tuple[object, object]
) -> None:
    """A hundredth of the bandwidth, or a slow loader, makes a step longer."""
    flags = [*write_run(tmp_path, **LOADING), "--simulate"]
    steps = []
    for value in values:
        machine = {section: {key: value}}
        (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"machine": machine}))
        assert run_here(flags, capsys)[0] == 0
        simulation = json.loads((tmp_path / "model_dir/simulation/simulation.json").read_text())
        steps.append(simulation["points"][0]["emulated"]["step_ps"])
        assert not simulation["simulation"]["as_published"]
    assert steps[1] > 1.5 * steps[0]


@pytest.mark.parametrize(
    ("flags", "code", "value"),
    [
        (["--num_csx=9"], "batch-below-systems", "num_csx 9"),
        (["--sweep=1-4,x"], "sweep-invalid", "'1-4,x'"),
        (["--system_kw=-1", "--token_budget=1e9"], "system_kw", "-1"),
        (["--token_budget=-5"], "token-budget-out-of-range", "-5"),
        (["--trace=nowhere/trace.json"], "trace-not-writable", "nowhere/trace.json"),
    ],
)
def test_simulate_refuses_wrong_flags_before_capture(
    tmp_path: Path, capsys: Capture, flags: list[str], code: str, value: str
) -> None:
    exit_code, out, err = run_here([*write_run(tmp_path), "--simulate", *flags], capsys)
    assert exit_code == 1
    assert "Traceback" not in out + err
    assert "Capturing" not in out
    assert code in err
    assert value in err


@pytest.mark.parametrize(
    ("size", "code"),
    [
        (8, "system-without-micro-batch"),
        ({"explore": {"min": 5}}, "no-size-to-explore"),
    ],
)
def test_simulate_refuses_a_micro_batch_before_capture(
    tmp_path: Path, capsys: Capture, size: object, code: str
) -> None:
    """It must fit the number of systems that is predicted in detail."""
    flags = [*write_run(tmp_path, **of_size(size)), "--simulate", "--sweep=1", "--num_csx=2"]
    exit_code, out, err = run_here(flags, capsys)
    assert exit_code == 1
    assert f"[{code}]" in err
    assert "Capturing" not in out


def test_simulate_refuses_a_token_budget_without_tokens(tmp_path: Path, capsys: Capture) -> None:
    params = Path(modelzoo.__file__).parent / "params" / "dit_2b.yaml"
    flags = [f"--params={params}", f"--model_dir={tmp_path}", "--simulate", "--token_budget=1e9"]
    exit_code, out, err = run_here(flags, capsys)
    assert exit_code == 1
    assert "[model-without-tokens]" in err
    assert "Capturing" not in out


def test_simulate_refuses_evaluation_and_flags_without_it(tmp_path: Path, capsys: Capture) -> None:
    for flags in (["--simulate", "--mode=eval"], ["--sweep=1-4"]):
        with pytest.raises(SystemExit) as stopped:
            run_here([*write_run(tmp_path), *flags], capsys)
        assert stopped.value.code == 2
        assert "--simulate" in capsys.readouterr().err
