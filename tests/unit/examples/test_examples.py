"""Every example runs to its end and does what it says; the index names them all."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.support.host.tools import rows
from tests.support.runs.tiny_run import write_run
from waferstream.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"


def functions_of(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def run(*words: object) -> None:
    assert main([str(word) for word in words]) == 0


def test_network_by_hand_learns() -> None:
    losses = functions_of("train_mlp")["train"](num_csx=2, steps=20)
    assert losses[-1] < 0.7 * losses[0]


def test_own_transformer_trains_from_its_params_file(tmp_path: Path) -> None:
    run(
        "--params", EXAMPLES / "own_transformer" / "params.yaml",
        "--cluster", EXAMPLES / "local.yaml",
        "--model_dir", tmp_path, "--max_steps", 2, "--num_csx", 2,
    )  # fmt: skip
    assert list(tmp_path.glob("checkpoint_*.mdl"))


def test_llama_of_hugging_face_learns() -> None:
    losses = functions_of("hugging_face_llama")["train"](num_csx=2, steps=4)
    assert losses[-1] < losses[0]


def test_scaling_experiment_draws_a_picture(tmp_path: Path) -> None:
    own = functions_of("scaling_experiment")
    rates = own["predict"]([1, 2], 64, width=64, depth=2)
    own["draw"](tmp_path / "scaling.png", [1, 2], {"tiny": rates})
    assert rates[1] > rates[0]
    assert (tmp_path / "scaling.png").read_bytes().startswith(b"\x89PNG")


def test_measurements_lie_on_a_curve(tmp_path: Path) -> None:
    own = functions_of("published_curve")
    measured = own["published"]("T0005-T0008")
    assert measured == {128: 199.5, 256: 202.09, 512: 202.05, 1024: 202.71}
    curve = tmp_path / "curve.csv"
    rows_of_study = [f"{batch},True,190.0,180.0,200.0" for batch in measured]
    columns = "batch_size,feasible,samples_per_s,samples_per_s_low,samples_per_s_high"
    curve.write_text("\n".join([columns, *rows_of_study, "7,False,,,"]))
    found = own["predicted"](curve)
    _, first, second, *_ = own["compared"](found, measured)
    assert first.split() == ["128", "190.0", "199.5", "-4.8%", "yes"]
    assert second.split()[-1] == "no"
    own["draw"](tmp_path / "published.png", found, measured)
    assert (tmp_path / "published.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of peft and accelerate
def test_adapter_learns_a_text() -> None:
    """As that of SmolLM2, on a LLaMA that is small."""
    own, llama = functions_of("fine_tune_lora"), functions_of("hugging_face_llama")
    model = own["adapted"](llama["make_model"](), rank=2)
    rows_of_text = own["samples"](list(range(64)) * 4, 16)
    before = own["loss_on"](model, rows_of_text)
    frozen = [weight.detach().clone() for weight in model.parameters() if not weight.requires_grad]
    assert len(own["fine_tune"](model, rows_of_text, 6, 2)) == 6
    after = [weight for weight in model.parameters() if not weight.requires_grad]
    assert own["loss_on"](model, rows_of_text) < before
    assert all(torch.equal(old, new) for old, new in zip(frozen, after, strict=True))


def test_own_machine_is_simulated(tmp_path: Path) -> None:
    params, _, model_dir = write_run(tmp_path)
    machine = EXAMPLES / "own_machine.yaml"
    run(params, model_dir, "--cluster", machine, "--simulate", "--num_csx", 4)


def test_many_hosts_share_weights_and_systems(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--cluster", str(EXAMPLES / "many_hosts.yaml"), "--num_csx", "8", "--hosts", "8x8")
    found = rows(capsys, "cluster", "plan", *words)
    assert sorted(row["CSX"] for row in found) == [f"csx-{index}" for index in range(8)]
    assert sorted(row["MEMORYX"] for row in found) == [f"wgt-{index}" for index in range(8)]


@pytest.mark.nightly
def test_own_machine_simulates_gpt2_as_the_index_says(tmp_path: Path) -> None:
    run(
        "--params", ROOT / "modelzoo" / "params" / "gpt2_small.yaml",
        "--cluster", EXAMPLES / "own_machine.yaml",
        "--num_csx", 8, "--simulate", "--model_dir", tmp_path,
    )  # fmt: skip


def test_slow_links_and_slow_systems_take_longer() -> None:
    own = functions_of("what_if")
    wanted = ("as published", "links 100 times slower", "one system twice as slow")
    machines = own["MACHINES"]
    for name in machines.keys() - set(wanted):
        del machines[name]
    times = own["step_times"](4)
    assert times["as published"] < times["one system twice as slow"]
    assert times["as published"] < times["links 100 times slower"]


def test_text_is_sampled_from_the_newest_checkpoint(tmp_path: Path) -> None:
    run(*write_run(tmp_path), "--max_steps", 2)
    own = functions_of("sample_text")
    model = own["load_model"](tmp_path / "params.yaml", tmp_path / "model_dir")
    text = own["sample"](model, "some", 20)
    assert text.startswith("some")
    assert text == own["sample"](model, "some", 20)


class Shown:
    """What ``IPython.display.display`` returns for a display that is updated."""

    def __init__(self, shown: object, **_: object) -> None:
        self.updates = 0

    def update(self, shown: object) -> None:
        self.updates += 1


def cells() -> list[dict[str, Any]]:
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def test_notebook_is_kept_with_its_outputs() -> None:
    """Two pictures and a table, and nothing of what Jupyter shows in red."""
    outputs = [output for cell in cells() for output in cell["outputs"]]
    kinds = [output["output_type"] for output in outputs]
    assert kinds.count("display_data") == 2
    assert {output.get("name") for output in outputs} == {None, "stdout"}


def test_notebook_runs_from_top_to_bottom(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the package itself, which matplotlib would ask for the shell.
    display = ModuleType("IPython.display")
    display.display = Shown  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    names: dict[str, Any] = {}
    with torch.random.fork_rng():
        for cell in cells():
            exec(compile("".join(cell["source"]), "notebook", "exec"), names)
    assert names["shown"].updates == 5
    assert names["losses"][-1] < names["losses"][0]
    assert names["rates"] == sorted(names["rates"])


@pytest.mark.nightly
def test_notebook_runs_in_a_kernel() -> None:
    """Needs the extra ``notebook``."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    kinds = [output.output_type for cell in notebook.cells for output in cell.get("outputs", ())]
    assert kinds.count("display_data") == 2
    assert "error" not in kinds


@pytest.mark.nightly
def test_cell_of_the_appliance_trains_in_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Needs the extra ``notebook``."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent))
    notebook = nbformat.read(EXAMPLES / "appliance.ipynb", as_version=4)
    place = {"metadata": {"path": str(EXAMPLES)}}
    nbclient.NotebookClient(notebook, timeout=110, resources=place).execute()
    (shown,) = [each for each in notebook.cells[2].outputs if each.output_type == "display_data"]
    assert shown.data["text/plain"].startswith("Finished | step 20 | loss ")
    assert "4 x CS-2" in shown.data["text/plain"]


def test_index_names_every_example() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    names = [path.name for path in EXAMPLES.iterdir() if not path.name.startswith((".", "_"))]
    assert [name for name in names if name != "README.md" and f"({name}" not in text] == []
