"""``waferstream check``: programs and params files beside plain PyTorch, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs.tiny_run import ROOT, write_run
from waferstream.cli.main import main

PROGRAM = """
import torch
from torch import nn
from torch.nn.functional import cross_entropy
import cstorch
import settings_beside

def batches():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, 3, (2, 12), generator=generator)
    labels[:, 7:] = -100
    return list(zip(torch.randn(2, 12, 4, generator=generator), labels))

backend = cstorch.backend("CSX", cluster_config=cstorch.ClusterConfig(num_csx=2))
cstorch.amp.enable_mixed_precision(False)
with backend.device:
    model = cstorch.compile(nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.2), nn.Linear(16, 3)), backend)
optimizer = cstorch.optim.AdamW(model.parameters(), lr=0.01)

@cstorch.trace
def step(x, labels):
    loss = cross_entropy(model(x), labels)
    loss = loss * (FACTOR)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss

settings_beside.calls += 1
assert settings_beside.calls == 1, "a module of the program is left over from an earlier run"
loader = cstorch.utils.data.DataLoader(batches)
for batch in cstorch.utils.data.DataExecutor(loader, num_steps=NUM_STEPS, activation_steps=10):
    step(*batch)
print("ended")
"""

BY_TRAINER = """
import torch
import cstorch

torch.manual_seed(0)
model = torch.nn.Linear(4, 3)
trainer = cstorch.Trainer(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    config=cstorch.CSConfig(max_steps=50),
    loss_fn=lambda scores, labels: scores.sub(labels).square().mean(),
)
trainer.fit([(torch.ones(8, 4), torch.ones(8, 3))])
print("ended")
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function that writes a program and checks it: exit code, standard output, error."""

    def check(program: str, *words: str, **values: object) -> tuple[int, str, str]:
        for name, value in values.items():
            program = program.replace(name, str(value))
        (tmp_path / "program.py").write_text(program)
        (tmp_path / "settings_beside.py").write_text("calls = 0")
        monkeypatch.chdir(tmp_path)
        code = main(["check", *words, "program.py"])
        return code, *capsys.readouterr()

    return check


def test_right_program_is_close(run: Any) -> None:
    """It is left after the steps to compare, and leaves nothing behind."""
    code, out, _ = run(PROGRAM, "--steps=2", FACTOR=1, NUM_STEPS=50)
    assert code == 0
    assert "step 2: close" in out
    assert "ended" not in out
    assert {path.name for path in Path().iterdir()} <= {
        *("program.py", "settings_beside.py", "__pycache__")
    }


def test_program_shorter_than_the_check_runs_to_its_end(run: Any) -> None:
    code, out, _ = run(PROGRAM, "--steps=5", FACTOR=1, NUM_STEPS=1)
    assert code == 0
    assert "ended" in out
    assert "step 1: close" in out


def test_wrong_program_is_different_from_the_op_on(run: Any) -> None:
    """It is recorded with another loss than the one that Python computes."""
    code, out, _ = run(PROGRAM, "--json", FACTOR="1 + backend.is_csx", NUM_STEPS=5)
    report = json.loads(out)
    assert code == 1
    assert report["outcome"] == "different"
    assert "program.py:23" in report["origin"]["where"]
    assert "aten.mul" in report["origin"]["where"]


def test_trainer_of_a_program_checks_its_own_steps(run: Any) -> None:
    code, out, _ = run(BY_TRAINER, "--steps=3")
    assert code == 0
    assert "step 3: " in out
    assert "ended" not in out


@pytest.mark.parametrize(
    ("program", "code"),
    [("print('nothing')", "nothing-to-check"), ("raise SystemExit(3)", None)],
)
def test_program_without_steps_is_an_error(run: Any, program: str, code: str | None) -> None:
    if code is None:
        with pytest.raises(SystemExit):
            run(program)
    else:
        assert code in run(program)[2]


def test_params_file_with_dropout_and_clipping_is_close(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder of the model is left alone."""
    write_run(tmp_path, init__model__dropout_rate=0.2, init__model_dir=str(tmp_path / "model"))
    assert main(["check", "--json", "--num_csx=2", str(tmp_path / "params.yaml")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [step["outcome"] for step in report["steps"]] == ["close", "close"]
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("program", ["train_mlp.py", "hugging_face_llama.py"])
def test_example_is_close(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", str(ROOT / "examples" / program)]) == 0
    assert json.loads(capsys.readouterr().out)["outcome"] == "close"
