"""What a run says while it goes on, and what it leaves."""

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.files.event_files import scalars
from tests.support.reports.html import Parsed
from tests.support.runs.tiny_run import digest_of, run_here, write_run
from waferstream.cli.main import main
from waferstream.core.units import format_ps, format_rate

LOOP = {"max_steps": 4, "eval_frequency": 2, "eval_steps": 1}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the model folder of a finished run, and its terminal output."""
    folder = tmp_path_factory.mktemp("run")
    flags = write_run(folder, compiles=True, init__loop=LOOP)
    runtime = {"kind": "local", "engine": {"kernels": {"norm": "wafer"}, "rows": 2, "columns": 4}}
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"runtime": runtime}))
    with redirect_stdout(io.StringIO()) as out:
        assert main(flags, home=folder) == 0
    return folder / "model_dir", out.getvalue()


def test_run_writes_every_file_of_the_readme(ended: tuple[Path, str]) -> None:
    """Checkpoints with their index, picture, summary, and a folder with log and configuration."""
    model_dir, out = ended
    folder = (model_dir / "latest_run.log").resolve().parent
    assert {path.name for path in model_dir.iterdir()} == {
        "cached_compile",
        "checkpoint_2.mdl",
        "checkpoint_4.mdl",
        "checkpoints_index.yaml",
        "checkpoints_index.yaml.lock",
        "cerebras_logs",
        "config.json",
        "history.jsonl",
        "latest_run.log",
        "loss.png",
        "model.safetensors",
        "run_summary.json",
        folder.name,
    }
    (event_file,) = folder.glob("events.out.tfevents.*")
    assert {path.name for path in folder.iterdir()} == {
        "run.log",
        "trainer_params.yaml",
        "cluster.yaml",
        "run_meta.json",
        "performance.json",
        "executors",
        "loss.png",
        "report.html",
        "run_summary.json",
        event_file.name,
    }
    assert (model_dir / "cerebras_logs" / "latest").resolve() == folder
    assert (folder / "executors" / "latest" / "metadata.json").is_file()
    summary = json.loads((model_dir / "run_summary.json").read_text())
    assert summary["weights_sha256"] == digest_of(out)


def test_log_of_a_run_has_every_line_and_the_command(ended: tuple[Path, str]) -> None:
    """From the command to the hash of the weights, in the order of the terminal."""
    model_dir, out = ended
    first, *logged = (model_dir / "latest_run.log").read_text().splitlines()
    assert f"--model_dir={model_dir}" in first
    shown = [line.removeprefix("INFO: ") for line in _without_times(out.splitlines())]
    assert [line.removeprefix("INFO: ") for line in _without_times(logged)] == shown


def test_run_ends_with_the_places_of_its_files(ended: tuple[Path, str]) -> None:
    """Its own folder, the losses of all runs, the newest checkpoint; all exist."""
    model_dir, out = ended
    lines = out.splitlines()
    last = "\n".join(lines[-5:-1])
    folder = (model_dir / "latest_run.log").resolve().parent
    losses, checkpoint = model_dir / "history.jsonl", model_dir / "checkpoint_4.mdl"
    for path in (folder, folder / "report.html", losses, checkpoint):
        assert path.exists()
        assert f" {path}" in last


def test_report_of_a_run_has_every_section_and_loads_nothing(ended: tuple[Path, str]) -> None:
    """From the losses to how to reproduce it, with the command and the resolved files."""
    model_dir, _ = ended
    parsed = _report(model_dir)
    parsed.assert_loads_nothing()
    assert parsed.sections == [
        "loss", "rates", "attribution", "stalls", "wafer", "tree", "memory", "engines", "cost", "error",
        "reproduce",
    ]  # fmt: skip
    command = (model_dir / "latest_run.log").read_text().splitlines()[0].partition("Command: ")[2]
    assert command in parsed.text
    folder = (model_dir / "latest_run.log").resolve().parent
    for name in ("trainer_params.yaml", "cluster.yaml"):
        assert (folder / name).read_text() in parsed.text


def test_report_of_a_run_has_the_values_of_its_summary(ended: tuple[Path, str]) -> None:
    model_dir, _ = ended
    parsed = _report(model_dir)
    summary = json.loads((model_dir / "run_summary.json").read_text())
    emulated, measured = summary["emulated"], summary["measured"]
    step, loss = summary["train"][-1]
    for text in (
        f"{loss:.4f} at step {step}",
        f"{format_rate(emulated['samples_per_s'])} samples/s, {format_ps(emulated['step_ps'])}",
        f"{format_rate(measured['samples_per_s'])} samples/s",
        summary["weights_sha256"],
        measured["host"]["torch"],
        summary["checkpoint"],
    ):
        assert text in parsed.text, text
    for step, loss, metrics in summary["eval"]:
        assert metrics.keys() == {"eval/accuracy", "eval/lm_perplexity"}
        assert {f"{step}", *(f"{x:.4f}" for x in (loss, *metrics.values()))} <= set(parsed.cells)
    shares = {cause: ps / emulated["total_ps"] for cause, ps in emulated["attribution_ps"].items()}
    assert {f"{share:.1%}" for share in shares.values() if share} <= set(parsed.cells)
    assert [step for step, _, _ in summary["rates"]] == [1, 2, 4]


def test_report_and_summary_have_the_region_of_every_layer(ended: tuple[Path, str]) -> None:
    """Norms are computed on the array; layers without one are those of torch."""
    model_dir, _ = ended
    summary = json.loads((model_dir / "run_summary.json").read_text())
    regions = summary["regions"]
    engines = {(each["layer"], each["phase"]): set(each["engines"]) for each in regions}
    assert engines["decoder.0", "forward"] == engines["decoder.0", "backward"] == {"torch", "wafer"}
    assert ["torch"] in [each["engines"] for each in regions]
    assert {(each["rows"], each["columns"]) for each in regions} == {(2, 4)}
    parsed = _report(model_dir)
    assert "engines" in parsed.sections
    assert {f"{each['cycles']:,}" for each in regions} | {"2 x 4"} <= set(parsed.cells)


def _report(model_dir: Path) -> Parsed:
    page = (model_dir / "latest_run.log").resolve().parent / "report.html"
    return Parsed(page.read_text(encoding="utf-8"))


def _without_times(lines: list[str]) -> list[str]:
    return [re.sub(r"^([-\d]+ )?\d\d:\d\d:\d\d(,\d+)? ", "", line) for line in lines]


def test_run_meta_names_compiles_and_executions(ended: tuple[Path, str]) -> None:
    """Jobs have the identifiers of the log; performance.json repeats what the summary says."""
    model_dir, out = ended
    folder = model_dir / "cerebras_logs" / "latest"
    meta = json.loads((folder / "run_meta.json").read_text())
    assert [job["is_cached"] for job in meta["compile_jobs"]] == [False, False]
    (execution,) = meta["execute_jobs"]
    assert execution["systems"] == ["csx-0"]
    for job in (*meta["compile_jobs"], execution):
        assert f"Job id: {job['id']}, workflow id: {job['workflow_id']}" in out
        assert job["start_time"] <= job["end_time"]
    performance = json.loads((folder / "performance.json").read_text())
    summary = json.loads((model_dir / "run_summary.json").read_text())
    assert performance["measured"] == summary["measured"]
    assert performance["global_step"] == 4


def test_outputs_of_a_run_agree_on_the_losses(ended: tuple[Path, str]) -> None:
    """Every step's loss is kept; lines are printed at the log steps and after each evaluation."""
    model_dir, out = ended
    summary = json.loads((model_dir / "run_summary.json").read_text())
    losses = dict(summary["train"])
    evaluations = {step: loss for step, loss, _ in summary["eval"]}
    assert list(losses) == [1, 2, 3, 4]
    assert list(evaluations) == [2, 4]
    for text in (out, (model_dir / "latest_run.log").read_text()):
        for step in (1, 2, 4):
            assert f"Train Device=CSX, Step={step}, Loss={losses[step]:.5f}" in text
        for step, loss in evaluations.items():
            assert f"GlobalStep={step}, Batch=1, Loss={loss:.5f}" in text
    (event_file,) = model_dir.rglob("events.out.tfevents.*")
    logged = {(name, step): value for name, value, step in scalars(event_file)}
    for step, loss in losses.items():
        assert logged["train/loss", step] == pytest.approx(loss)
    for step, loss in evaluations.items():
        assert logged["eval/loss", step] == pytest.approx(loss)
    assert {step for name, step in logged if name == "train/gradient_norm"} == {1, 2, 4}
    assert "train/lr" not in {name for name, _ in logged}  # no schedule, no curve


def test_run_announces_its_stages_in_order(ended: tuple[Path, str]) -> None:
    """The phrases are those of the vendor's client (ALCF user guides, example-programs)."""
    _, out = ended
    phrases = [
        "Initiating a new compile wsjob against the cluster server.",
        "Job id: wsjob-",
        "Compiling the model. This may take a few minutes.",
        "Compile was successful!",
        "Waiting for weight initialization to complete",
        "Programming Cerebras Wafer Scale Cluster for execution. This may take a few minutes.",
        "Initiating a new execute wsjob against the cluster server.",
        "Poll ingress status: Waiting for all Weight pods to be running, current running: 0/",
        "Waiting for job ingress readiness.",
        "Poll ingress success: Job ingress ready",
        "Preparing to execute using 1 CSX",
        "About to send initial weights",
        "Finished sending initial weights",
        "Finalizing appliance staging for the run",
        "Waiting for device programming to complete",
        "Device programming is complete",
        "Using network type: ",
        "Appliance staging is complete",
        "Beginning appliance run",
        "Saving checkpoint at step 2",
        "Saved checkpoint ",
        "Saving checkpoint at step 4",
        "Training completed successfully!",
    ]
    positions = [out.index(phrase) for phrase in phrases]
    assert positions == sorted(positions)


def test_six_lines_come_before_the_first_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain ones, which fit a terminal; the log of the run has those of the vendor's client."""
    words = {"log_steps": 2, "words": "plain"}
    flags = write_run(tmp_path, init__loop=LOOP, init__logging=words)
    code, out, err = run_here(flags, capsys)
    assert code == 0, err
    lines = out.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("step "))
    assert first <= 6, lines[:first]
    progress = [line for line in lines if line.startswith("step ")]
    assert len(progress) >= 4
    assert max(map(len, progress)) <= 80
    assert not {"wsjob", "ingress", "pods", "| Train"} & set(" ".join(lines).split())
    (log,) = (tmp_path / "model_dir").glob("*/run.log")
    assert "Poll ingress success" in log.read_text()


def test_quiet_run_says_its_result_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_here([*write_run(tmp_path, init__loop=LOOP), "--quiet"], capsys)
    assert code == 0, err
    assert out.splitlines() == [f"Weights SHA-256: {digest_of(out)}"]


def test_loggers_can_be_switched_off(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``{Name: null}``: neither progress lines nor events, and still a summary."""
    none = [{"ProgressLogger": None}, {"TensorBoardLogger": None}]
    code, out, err = run_here(write_run(tmp_path, init__loop=LOOP, init__loggers=none), capsys)
    assert code == 0, err
    assert "Train Device" not in out + err
    assert not list(tmp_path.rglob("events.out.tfevents.*"))
    assert (tmp_path / "model_dir" / "run_summary.json").is_file()


def test_run_on_cpu_has_the_weights_of_one_micro_batch(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The device word runs the same file as plain PyTorch: training, evaluation, a resume."""
    plain = {"csx.performance.micro_batch_size": None}
    changes: dict[str, Any] = {"init__callbacks": [{"GlobalFlags": plain}]}
    flags = write_run(tmp_path, init__loop=LOOP, **changes)
    code, on_csx, err = run_here([*flags, "CSX", f"--model_dir={tmp_path / 'csx'}"], capsys)
    assert code == 0, err
    code, on_cpu, err = run_here([*flags, "CPU"], capsys)
    assert code == 0, err
    assert digest_of(on_cpu) == digest_of(on_csx)
    assert "| Train Device=CPU, Step=2, Loss=" in on_cpu
    assert "| Eval Device=CPU, GlobalStep=4" in on_cpu
    assert "EmulatedRate" not in on_cpu
    resumed = f"--checkpoint_path={tmp_path / 'model_dir' / 'checkpoint_2.mdl'}"
    code, again, err = run_here([*flags, "CPU", resumed, f"--model_dir={tmp_path / 'b'}"], capsys)
    assert code == 0, err
    assert digest_of(again) == digest_of(on_csx)
