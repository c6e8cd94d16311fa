"""A run with a model and a loader of the user's."""

from __future__ import annotations

import json
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from torch import nn

from scripts.reference_loop import tree_sum
from tests.support.errors import raises
from tests.support.models.tiny_models import SIZES
from tests.support.programs.user_programs import CROSS_ENTROPY, user_trainer, write_program
from tests.support.runs.tiny_run import digest_of, run_here, write_run
from waferstream.checkpoint.reader import Reader
from waferstream.config.params import InitConfig
from waferstream.core.errors import ConfigError
from waferstream.training.setup.loaders import check_share


def test_model_of_the_user_trains_as_in_a_plain_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shuffled batches, its own weights, eight micro-batches, two systems: the same bits."""
    trainer = user_trainer(
        {"class": "plain_net:Net", "width": 6, "loss": CROSS_ENTROPY},
        {"class": "plain_net:pairs", "batch_size": 8},
        seed=5,
        checkpoint={"steps": 3},
    )
    flags = write_program(tmp_path, "plain_net", trainer)
    code, _, err = run_here([*flags, "--num_csx=2"], capsys)
    assert code == 0, err
    monkeypatch.syspath_prepend(str(tmp_path))
    net = import_module("plain_net")
    torch.manual_seed(5)
    model = net.Net(width=6)
    torch.manual_seed(5)
    for x, target in islice(net.pairs(8), 3):
        train_step(model, x, target)
    reader = Reader(tmp_path / "model_dir" / "checkpoint_3.mdl")
    for name, weight in model.state_dict().items():
        np.testing.assert_array_equal(reader[f"model.{name}"], weight.numpy())


def train_step(model: nn.Module, x: torch.Tensor, target: torch.Tensor) -> None:
    """Train one step of SGD over eight micro-batches of a sample."""

    def gradients(index: int) -> list[torch.Tensor]:
        one = slice(index, index + 1)
        loss = nn.functional.cross_entropy(model(x[one]), target[one])
        return list(torch.autograd.grad(loss / len(x), list(model.parameters())))

    for parameter, gradient in zip(model.parameters(), tree_sum(gradients, len(x)), strict=True):
        parameter.data.sub_(gradient, alpha=0.5)


@pytest.mark.parametrize(
    ("model", "data", "name"),
    [
        ({"class": "two_forms:NetWithLoss"}, "named", "NetWithLoss"),
        ({"class": "two_forms:make_net", "loss": CROSS_ENTROPY}, "endless", "Net"),
    ],
)
def test_loss_in_the_model_and_loaders_of_any_form_train(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: dict[str, Any], data: str, name: str
) -> None:
    """The report has the class of the model, also where a function makes it."""
    loader = {"class": f"two_forms:{data}", "batch_size": 8}
    flags = write_program(tmp_path, "two_forms", user_trainer(model, loader))
    code, out, err = run_here([*flags, "--compile_only"], capsys)
    assert code == 0, err
    assert "Compiled" in out
    summary = json.loads((tmp_path / "model_dir" / "run_summary.json").read_text())
    assert summary["model"]["name"] == name
    _, out, _ = run_here([*flags, "--simulate", "--json", "--local"], capsys)
    assert json.loads(out)["model"]["name"] == name


@pytest.mark.parametrize(
    ("model", "data", "loop", "code"),
    [
        ({"class": "misuse:Net"}, "pairs", {}, "batch-not-model-input"),
        ({"class": "misuse:Nat"}, "pairs", {}, "class-not-importable"),
        ({"class": "misuse:NetWithLoss"}, "wrong_size", {}, "batch-size-mismatch"),
        ({"class": "misuse:NetWithLoss"}, "endless", {"max_steps": None}, "num-steps-unknown"),
    ],
)
def test_mistake_in_a_program_of_the_user_is_explained(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    model: dict[str, Any],
    data: str,
    loop: dict[str, Any],
    code: str,
) -> None:
    model = {**model, "dropout": 0.0}
    loader = {"class": f"misuse:{data}", "batch_size": 8}
    trainer = user_trainer(model, loader, loop={"max_steps": 3, "eval_frequency": 0, **loop})
    flags = write_program(tmp_path, "misuse", trainer)
    found, _, err = run_here([*flags, "--mode=train"], capsys)
    assert found == 1
    assert f"[{code}]" in err


def test_evaluation_drops_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The loss of the initial weights does not depend on the dropout rate."""
    losses = []
    for rate in (0.0, 0.5):
        data = {"class": "drops:named", "batch_size": 8}
        trainer = user_trainer({"class": "drops:NetWithLoss", "dropout": rate}, data)
        trainer = {"init": trainer["init"], "validate": {"val_dataloader": data}}
        flags = write_program(tmp_path, "drops", trainer)
        code, _, err = run_here([*flags, "--mode=eval"], capsys)
        assert code == 0, err
        summary = json.loads((tmp_path / "model_dir" / "run_summary.json").read_text())
        losses.append(summary["eval"])
    assert losses[0] == losses[1] != []


def test_python_paths_of_a_job_hold_its_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The module lies neither beside the params file nor in the working folder."""
    data = {"class": "kept_apart:named", "batch_size": 8}
    trainer = user_trainer({"class": "kept_apart:NetWithLoss"}, data)
    flags = write_program(tmp_path, "kept_apart", trainer)
    code_folder = tmp_path / "code"
    code_folder.mkdir()
    (tmp_path / "kept_apart.py").rename(code_folder / "kept_apart.py")
    assert run_here([*flags, "--validate_only"], capsys)[0] == 1
    code, _, err = run_here([*flags, "--validate_only", "--python_paths", str(code_folder)], capsys)
    assert code == 0, err


def test_folders_of_code_are_refused_with_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder could hold a package that is imported where it is installed."""
    monkeypatch.setenv("WAFERSTREAM_USER_CODE", "refuse")
    flags = [*write_run(tmp_path), "--validate_only"]
    code, _, err = run_here([*flags, "--python_paths", str(tmp_path)], capsys)
    assert code == 1
    assert "[user-code-refused]" in err


def test_packed_documents_train_alike_on_any_number_of_systems(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other weights than without the spans: a document does not read the one before it."""
    rows = np.zeros((8, 5, 16), np.int32)
    rows[:, 0] = np.arange(8)[:, None] + np.arange(16)
    rows[:, 1], rows[:, 2] = 1, rows[:, 0] + 1
    rows[:, 3], rows[:, 4] = np.tile(np.arange(8), 2)[::-1], np.tile(np.arange(8), 2)
    for name, features in (("packed", 5), ("plain", 3)):
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            file["data"] = rows[:, :features]
    digests = set()
    for name, systems in (("packed", 1), ("packed", 2), ("plain", 1)):
        section = {
            "data_processor": "GptHDF5MapDataProcessor",
            "data_dir": str(tmp_path / f"{name}.h5"),
            "batch_size": 8,
            "use_vsl": name == "packed",
        }
        folder = tmp_path / f"{name}{systems}"
        folder.mkdir()
        flags = write_run(
            folder,
            fit={"train_dataloader": section},
            init__loop={"max_steps": 1},
            init__callbacks=[{"ScopedTrainFlags": {"csx.performance.micro_batch_size": 2}}],
        )
        code, out, err = run_here([*flags, f"--num_csx={systems}"], capsys)
        assert code == 0, err
        digests.add((name, digest_of(out)))
    assert len(digests) == 2
    assert len({digest for _, digest in digests}) == 2


def test_evaluation_that_cuts_groups_is_refused_with_its_loader() -> None:
    """Before training, whose micro-batches of four samples have whole groups."""
    encoder = {"vocab_size": 8, **SIZES}
    init = InitConfig.model_validate(
        {
            "model": {"name": "dpr", "encoder": encoder, "group_size": 4},
            "callbacks": [{"ScopedTrainFlags": {"csx.performance.micro_batch_size": 4}}],
        }
    )
    check_share(init, 24, "train")
    with raises(ConfigError, "group-cut"):
        check_share(init, 24, "validate")
