"""The optimizer of a run says which of its values nothing reads."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from cstorch.sparse.selective_grad import outlier
from tests.support.errors import raises
from tests.support.models.tiny_dino import DINO
from tests.support.runs.tiny_run import run_here, write_run
from tests.support.runs.tiny_training import GPT, init_config
from waferstream.checkpoint.reader import Reader
from waferstream.config.sections.lora import LoraConfig
from waferstream.core.errors import ConfigError
from waferstream.training.setup.model import (
    LoraEmbedding,
    LoraLinear,
    add_lora,
    make_optimizer,
    select_gradients,
)
from waferstream.workload.models import build_model

DECAY: dict[str, Any] = {
    "initial_learning_rate": 0.1,
    "end_learning_rate": 0.01,
    "total_iters": 4,
}


@pytest.mark.parametrize(
    ("lr", "tags", "is_reported"),
    [(0.5, None, True), (1e-3, None, False), (None, None, False), (0.5, ["decay"], False)],
)
def test_rate_beside_a_scheduler_is_reported(
    caplog: pytest.LogCaptureFixture, lr: float | None, tags: list[str] | None, is_reported: bool
) -> None:
    """Not the default one, which flags write into a file that has none, nor one of some groups."""
    scheduler = {**DECAY, **({"param_group_tags": tags} if tags else {})}
    optimizer = {"AdamW": {} if lr is None else {"lr": lr}}
    init = init_config(optimizer=optimizer, schedulers=[{"LinearLR": scheduler}])
    with caplog.at_level(logging.WARNING):
        make_optimizer(init, build_model(GPT, seed=0))
    assert ("LinearLR sets the learning rate of every step" in caplog.text) is is_reported


def gpt() -> nn.Module:
    """Return a tiny model."""
    return build_model(GPT, seed=0)


def batch() -> dict[str, torch.Tensor]:
    """Return two sequences."""
    ids = torch.arange(16).view(2, 8)
    return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


def adapted(**options: Any) -> nn.Module:
    """Return the tiny model with adapted modules."""
    return add_lora(gpt(), [LoraConfig(**{"r": 2, **options})], seed=3)


def drawn(model: nn.Module) -> nn.Module:
    """Return the model with matrices that are not zero."""
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora" in name:
            nn.init.normal_(parameter, std=0.1)
    return model


def test_adapted_model_begins_with_the_same_loss() -> None:
    """One matrix of each pair is zero; the other follows from the seed and the name."""
    assert torch.equal(adapted()(**batch()), gpt()(**batch()))
    again = dict(adapted().named_parameters())
    assert all(torch.equal(p, again[name]) for name, p in adapted().named_parameters())


@pytest.mark.parametrize(
    ("targets", "kinds"),
    [
        (None, {LoraLinear, LoraEmbedding}),
        (["Linear"], {LoraLinear}),
        (["Embedding"], {LoraEmbedding}),
        (["TransformerDecoderLayer", "Linear"], {LoraLinear}),
    ],
)
def test_targets_are_classes_around_a_module(targets: list[str] | None, kinds: set[type]) -> None:
    """Names of the vendor's zoo stand for those of ours; the tied head stays tied."""
    model = adapted(target_modules=targets)
    found = {type(m) for m in model.modules() if isinstance(m, LoraLinear | LoraEmbedding)}
    assert found == kinds
    in_layers = targets is not None and len(targets) == 2
    assert isinstance(model.head, LoraLinear) == (LoraLinear in kinds and not in_layers)
    assert model.get_parameter("head.weight") is model.get_parameter("embedding.weight")
    trained = {name.rpartition(".")[2] for name, p in model.named_parameters() if p.requires_grad}
    assert trained == {"lora_A", "lora_B"}


@pytest.mark.parametrize("fan_in_fan_out", [False, True])
def test_product_is_that_of_the_paper(fan_in_fan_out: bool) -> None:
    """W x + b + (alpha / r) B A x."""
    torch.manual_seed(0)
    base = nn.Linear(4, 4)
    config = LoraConfig(r=2, alpha=3.0, fan_in_fan_out=fan_in_fan_out)
    layer, x = drawn(add_lora(base, [config], seed=0)), torch.randn(5, 4)
    assert isinstance(layer, LoraLinear)
    weight = base.weight.T if fan_in_fan_out else base.weight
    whole = weight + 1.5 * layer.lora_B @ layer.lora_A
    torch.testing.assert_close(layer(x), x @ whole.T + base.bias)


def test_merged_evaluation_has_the_same_scores() -> None:
    """Training does not merge, nor does an evaluation without the key."""
    plain, merged = drawn(adapted()), drawn(adapted(merge_weights=True))
    assert torch.equal(plain(**batch()), merged(**batch()))
    torch.testing.assert_close(plain.eval()(**batch()), merged.eval()(**batch()))


def test_targets_that_are_not_in_the_model_are_refused() -> None:
    """The error has the classes that there are."""
    with raises(ConfigError, "lora-without-target"):
        adapted(target_modules=["Conv2d"])


def test_averages_of_frozen_weights_are_refused() -> None:
    """The teacher of DINO would never move."""
    with raises(ConfigError, "lora-with-averages"):
        add_lora(build_model(DINO, seed=0), [LoraConfig(r=2)], seed=0)


def test_run_trains_the_selected_elements(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others have their initial values, in a run that goes on, too."""
    callback = {"SelectiveGrad": {"selective_grads": {"param_filter": "*up.weight"}}}
    run: dict[str, Any] = {
        "init__callbacks": [callback],
        "init__optimizer": {"AdamW": {"lr": 0.01, "weight_decay": 0.0}},
        "init__checkpoint": {"steps": 2, "save_initial_checkpoint": True},
    }
    for max_steps in (2, 4):
        loop = {"max_steps": max_steps, "eval_frequency": 0}
        code, _, err = run_here(write_run(tmp_path, init__loop=loop, **run), capsys)
        assert code == 0, err
    before, after = (Reader(tmp_path / "model_dir" / f"checkpoint_{n}.mdl") for n in (0, 4))
    names = [name for name in before.names("model") if name.endswith("up.weight")]
    assert names
    for name in names:
        first = torch.from_numpy(before[f"model.{name}"])
        assert torch.equal(torch.from_numpy(after[f"model.{name}"]) != first, outlier(first))


def test_filter_that_selects_no_parameter_is_refused() -> None:
    sections = {"selective_grads": [{"param_filter": None}, {"param_filter": "*.none"}]}
    init = init_config(callbacks=[{"SelectiveGrad": sections}])
    with raises(ConfigError, "selective-grad-without-parameter") as caught:
        select_gradients(init, gpt())
    assert caught.value.value == "*.none"


def test_run_adapts_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The weights of a dense checkpoint are frozen; the matrices begin anew, and are saved."""
    small: dict[str, Any] = {"init__loop": {"max_steps": 2, "eval_frequency": 0}}
    flags = write_run(tmp_path, **small)
    assert run_here(flags, capsys)[0] == 0
    dense = tmp_path / "dense.mdl"
    (tmp_path / "model_dir" / "checkpoint_2.mdl").rename(dense)
    lora = {"Lora": {"lora_params": {"r": 2, "target_modules": ["Attention"]}}}
    states = {"LoadCheckpointStates": {"load_checkpoint_states": "model"}}
    own = {"steps": 2, "disable_strict_checkpoint_loading": True}
    flags = write_run(tmp_path, **small, init__callbacks=[lora, states], init__checkpoint=own)
    code, _, err = run_here([*flags, f"--checkpoint_path={dense}"], capsys)
    assert code == 0, err
    before, after = Reader(dense), Reader(tmp_path / "model_dir" / "checkpoint_2.mdl")
    names = set(before.names("model"))
    assert all((before[f"model.{n}"] == after[f"model.{n}"]).all() for n in names)
    new = {name for name in after.names("model") if name not in names}
    assert {name.rpartition(".")[2] for name in new} == {"lora_A", "lora_B"}
    assert any(after[f"model.{name}"].any() for name in new if name.endswith("lora_B"))
    assert all("lora" in name for name in after.names("optimizer"))
