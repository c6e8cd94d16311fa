"""``--shrink``: a params file at a size that this host trains."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pytest

from modelzoo import PARAMS
from tests.support.errors import raises
from tests.support.runs.params_files import trainer as plain_trainer
from tests.support.runs.params_files import written
from waferstream.cli.main import main
from waferstream.config.params import Params
from waferstream.config.phases import load_params
from waferstream.config.shrinking.shrink import differences, shrunk
from waferstream.core.errors import ConfigError
from waferstream.workload.models import parameter_shapes

WEIGHT_DECAY = {"initial_val": 0.1, "end_val": 0.2, "total_iters": 4}
LOADER = {"data_processor": "DummyDataProcessor", "batch_size": 8}


def trainer() -> dict[str, Any]:
    model = {
        "name": "gpt3",
        "vocab_size": 50257,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_heads": 12,
    }
    fit = {"train_dataloader": dict(LOADER)}
    return {
        **plain_trainer(model={**model, "filter_size": 3072, "max_position_embeddings": 2048}),
        "fit": fit,
    }


@pytest.mark.parametrize("path", sorted(PARAMS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_stock_file_shrinks(path: Path) -> None:
    """The model has at most so many parameters, and every key that is no size is as it was."""
    before = load_params(path)
    after = shrunk(before, 2e6)
    model = after.trainer.init.model.dump()
    assert sum(map(prod, parameter_shapes(model).values())) <= 2e6
    for key in ("optimizer", "schedulers", "precision", "checkpoint", "logging", "sparsity"):
        assert getattr(after.trainer.init, key) == getattr(before.trainer.init, key)


def test_data_that_are_not_here_become_synthetic(tmp_path: Path) -> None:
    """What was read and what is read instead are told; data that are here stay."""
    absent = {"data_processor": "GptHDF5MapDataProcessor", "data_dir": "nowhere", "batch_size": 64}
    section = trainer()
    section["fit"]["train_dataloader"] = absent
    before = load_params(written(tmp_path, section))
    after = shrunk(before, 1e6)
    assert after.trainer.fit is not None
    found = after.trainer.fit.train_dataloader.dump()
    assert (found["data_processor"], found["batch_size"]) == ("SyntheticDataProcessor", 8)
    told = list(differences(before.dump(), after.dump()))
    where = "trainer.fit.train_dataloader"
    assert (
        f"{where}.data_processor: GptHDF5MapDataProcessor -> SyntheticDataProcessor, "
        "random inputs of the model"
    ) in told
    assert f"{where}.batch_size: 64 -> 8" in told


def test_a_micro_batch_is_no_larger_than_the_batch(tmp_path: Path) -> None:
    section = trainer()
    flags = {"ScopedTrainFlags": {"csx.performance.micro_batch_size": 55}}
    section["init"]["callbacks"] = [flags]
    section["init"]["loop"] = {"max_steps": 4, "eval_steps": 1000}
    section["fit"]["train_dataloader"] = {**LOADER, "batch_size": 110}
    init = shrunk(load_params(written(tmp_path, section)), 1e6).trainer.init
    assert init.micro_batch_policy("train").requested == 8
    assert init.loop.eval_steps == 8


@pytest.mark.parametrize(("freq", "kept"), [(3, 1), (2, 2)])
def test_masks_change_within_the_run(tmp_path: Path, freq: int, kept: int) -> None:
    """Of a schedule that begins after the last step, as one of a long run does in a short one."""
    section = trainer()
    section["init"] |= {
        "loop": {"max_steps": 2},
        "sparsity": {"sparsity": 0.5, "algorithm": "set", "drop_fraction": 0.3,
                     "update": {"freq": freq}},
    }  # fmt: skip
    found = shrunk(load_params(written(tmp_path, section)), 1e6).trainer.init.sparsity
    assert found is not None
    (group,) = found
    assert group.update is not None
    assert group.update.freq == kept


def test_tags_of_layers_that_are_left_out_go_with_their_schedulers(tmp_path: Path) -> None:
    """A tag that selects nothing of the whole model either stays, so that training names it."""
    section = trainer()
    tags = {"first": "*layers.0.*", "last": "*layers.11.*", "wrong": "*layers.12.*"}
    params = [{"params": glob, "tag": tag} for tag, glob in tags.items()]
    groups = (["first", "last"], ["last"], ["wrong"])
    section["init"] |= {
        "optimizer": {"SGD": {"params": params}},
        "schedulers": [
            {"ConstantLR": {"learning_rate": 0.1, "param_group_tags": group}}
            for group in (groups[0], groups[2])
        ]
        + [{"CosineDecayWD": {**WEIGHT_DECAY, "param_group_tags": groups[1]}}],
    }
    before = load_params(written(tmp_path, section))
    after = shrunk(before, 1e5)
    init = after.trainer.init
    assert init.optimizer is not None
    assert init.optimizer.tags == {"decay", "no_decay", "first", "wrong"}
    assert [each.param_group_tags for each in init.schedulers] == [("first",), ("wrong",)]
    told = list(differences(before.dump(), after.dump()))
    assert "trainer.init.optimizer.SGD.params: 3 -> 2, without 1" in told
    assert "trainer.init.schedulers: 3 -> 2, without 0, 2" in told


def test_a_target_below_the_smallest_version_is_refused_with_its_size() -> None:
    with raises(ConfigError, "shrink-too-small") as caught:
        shrunk(load_params(PARAMS / "gpt2_small.yaml"), 1000)
    assert "--shrink" in str(caught.value)


def test_a_model_without_a_known_width_is_refused(tmp_path: Path) -> None:
    section: dict[str, Any] = trainer()
    section["init"]["model"] = {"class": "torch.nn:Linear", "in_features": 4, "out_features": 4}
    params = Params.model_validate({"trainer": section})
    with raises(ConfigError, "shrink-without-width"):
        shrunk(params, 1e6)


def test_the_command_trains_what_it_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of a model of 124 million parameters trains a step of a small one."""
    file, machine = PARAMS / "gpt2_small.yaml", tmp_path / "cluster.yaml"
    machine.write_text("runtime: {kind: local}\n")
    words = ["--params", str(file), "--mode", "train", "--shrink", "100K", "--max_steps", "1"]
    folder = ["--model_dir", str(tmp_path / "run"), "--cluster", str(machine)]
    assert main([*words, *folder, "--num_csx", "2"]) == 0
    assert "trainer.init.model.hidden_size: 768 -> 32" in capsys.readouterr().out
    assert (tmp_path / "run" / "checkpoint_1.mdl").exists()
