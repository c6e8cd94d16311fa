"""``--simulate`` against a run that really trains, and what it says of bad input."""

import json
from pathlib import Path

import pytest
import yaml

import modelzoo
from tests.support.tiny_run import run_here, write_run

MICRO_BATCH = "init__callbacks"
LOADING = {
    "fit__train_dataloader__loader": "csv",
    "fit__train_dataloader__num_workers": 3,
    "init__backend": {"cluster_config": {"num_workers_per_csx": 2}},
}


def of_size(size):
    """Changes of ``write_run`` that set the micro-batch of training."""
    return {MICRO_BATCH: [{"ScopedTrainFlags": {"csx.performance.micro_batch_size": size}}]}


@pytest.mark.parametrize(("num_csx", "size", "layers"), [(1, 2, 2), (3, 1, 8)])
def test_a_run_takes_on_the_emulated_clock_what_its_simulation_says(
    tmp_path, capsys, num_csx, size, layers
) -> None:
    """Two steps, to the picosecond; also where some systems run out of micro-batches.

    Of eight layers, five are captured.
    """
    changes = {**of_size(size), **LOADING, "init__model__num_hidden_layers": layers}
    flags = [*write_run(tmp_path, **changes), f"--num_csx={num_csx}"]
    code, out, err = run_here([*flags, "--simulate"], capsys)
    assert code == 0, err
    assert "Weights SHA-256" not in out
    assert not list((tmp_path / "model_dir").glob("*.mdl"))
    folder = tmp_path / "model_dir" / "simulation"
    simulation = json.loads((folder / "simulation.json").read_text())
    point = simulation["points"][-1]
    assert (point["num_csx"], point["micro_batch_size"]) == (num_csx, size)
    assert json.loads((folder / "step_trace.json").read_text())["traceEvents"]
    assert (folder / "simulation.png").stat().st_size > 10_000

    assert run_here([*flags, "--mode=train", "--num_steps=2"], capsys)[0] == 0
    summary = json.loads((tmp_path / "model_dir" / "run_summary.json").read_text())
    settled = point["steps_ps"][-1]
    first, second = (*point["steps_ps"], settled)[:2]
    assert summary["emulated"]["total_ps"] == first + second


def test_a_sweep_needs_no_data_and_finds_what_it_captured_before(tmp_path, capsys) -> None:
    """Shapes come from the model then; the second time nothing is captured."""
    flags = [*write_run(tmp_path), "--simulate", "--sweep=1-8:x2", "--token_budget=1e6"]
    (tmp_path / "text.txt").unlink()
    code, out, err = run_here(flags, capsys)
    assert code == 0, err
    assert "Capturing the step" in out
    assert "illustrative prices" in out
    first = json.loads((tmp_path / "model_dir/simulation/simulation.json").read_text())
    assert [point["num_csx"] for point in first["points"]] == [1, 2, 4, 8]
    assert first["machine"]["system"]["name"] == "CS-2"
    assert first["as_published"]

    code, out, _ = run_here(flags, capsys)
    again = json.loads((tmp_path / "model_dir/simulation/simulation.json").read_text())
    assert code == 0
    assert "Capturing the step" not in out
    assert again["points"] == first["points"]


@pytest.mark.parametrize(
    ("section", "key", "values"),
    [
        ("memoryx", "bandwidth_bytes_per_s", (10**11, 10**6)),
        ("input", "csv", ({"sample_ps": 0}, {"sample_ps": 10**12})),
    ],
)
def test_one_hardware_number_moves_the_curve(tmp_path, capsys, section, key, values) -> None:
    """A hundredth of the bandwidth, or a slow loader, makes a step longer."""
    flags = [*write_run(tmp_path, **LOADING), "--simulate"]
    steps = []
    for value in values:
        machine = {section: {key: value}}
        (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"machine": machine}))
        assert run_here(flags, capsys)[0] == 0
        simulation = json.loads((tmp_path / "model_dir/simulation/simulation.json").read_text())
        steps.append(simulation["points"][0]["step_ps"])
        assert not simulation["as_published"]
    assert steps[1] > 1.5 * steps[0]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--num_csx=9"], ["batch_size 8, num_csx 9", "lower num_csx"]),
        (["--sweep=1-4,x"], ["--sweep", "'1-4,x'", "1-2048:x2"]),
        (["--system_kw=-1", "--token_budget=1e9"], ["system_kw", "-1"]),
        (["--token_budget=-5"], ["tokens", "-5"]),
        (["--trace=nowhere/trace.json"], ["--trace", "nowhere/trace.json", "its folder exists"]),
    ],
)
def test_what_cannot_be_simulated_is_one_clear_message(tmp_path, capsys, flags, words) -> None:
    """With the flag or numbers, and no traceback."""
    code, out, err = run_here([*write_run(tmp_path), "--simulate", *flags], capsys)
    assert code == 1
    assert "Traceback" not in out + err
    assert "Capturing" not in out, "refused before anything is captured"
    for word in words:
        assert word in err


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (3, "[batch-not-divisible]"),
        (8, "[system-without-micro-batch]"),
        ({"explore": {"min": 5}}, "[no-size-to-explore]"),
    ],
)
def test_a_micro_batch_that_cannot_be_is_told_before_capture(tmp_path, capsys, size, words) -> None:
    """On any number of systems of the sweep."""
    flags = [*write_run(tmp_path, **of_size(size)), "--simulate", "--sweep=1,2"]
    code, out, err = run_here(flags, capsys)
    assert code == 1
    assert words in err
    assert "Capturing" not in out


def test_tokens_of_a_model_that_reads_none_are_told_before_capture(tmp_path, capsys) -> None:
    """With the flag."""
    params = Path(modelzoo.__file__).parent / "params" / "dit_2b.yaml"
    flags = [f"--params={params}", f"--model_dir={tmp_path}", "--simulate", "--token_budget=1e9"]
    code, out, err = run_here(flags, capsys)
    assert code == 1
    assert "reads no tokens" in err
    assert "--token_budget" in err
    assert "Capturing" not in out


def test_an_evaluation_is_not_simulated(tmp_path, capsys) -> None:
    """Nor do flags of a simulation go with a run."""
    for flags in (["--simulate", "--mode=eval"], ["--sweep=1-4"]):
        with pytest.raises(SystemExit) as stopped:
            run_here([*write_run(tmp_path), *flags], capsys)
        assert stopped.value.code == 2
        assert "--simulate" in capsys.readouterr().err
