"""The reference loop as a script: its digest, and the configurations that it refuses."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from scripts import reference_loop
from tests.support.runs.tiny_training import GPT, LOADER, Shape, init_config, train_on_cluster
from waferstream.training.setup.model import make_model
from waferstream.workload.data import build_source


def test_reference_loop_prints_the_digest_of_the_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last line equals that of run.py for the same params.yaml."""
    init = init_config()
    params = tmp_path / "params.yaml"
    trainer = {"init": init.dump(), "fit": {"train_dataloader": LOADER}}
    params.write_text(yaml.safe_dump({"trainer": trainer}))
    monkeypatch.setattr(sys, "argv", ["reference_loop.py", "--params", str(params), "--steps", "2"])
    reference_loop.main()
    digest = train_on_cluster(init, Shape(2), 2)
    assert capsys.readouterr().out == f"Weights SHA-256: {digest}\n"


def test_parameters_with_learning_rates_of_their_own_equal_the_loop() -> None:
    """Those of muP by width, and one that the optimizer's section adjusts."""
    wide = {"mup_base_hidden_size": 8, "mup_base_filter_size": 8}
    adamw = {"adamw": {"weight_decay": 0.1, "adjust_learning_rate": {"embedding": 3.0}}}
    init = init_config(GPT | wide, optimizer=adamw)
    source = build_source(LOADER, "test")
    model = reference_loop.train(init, map(source.batch, range(3)), source.batch_size)
    assert reference_loop.weights_sha256(model) == train_on_cluster(init, Shape(2))


def test_adapted_model_equals_the_loop() -> None:
    """Weights of the model stay frozen, with weight decay and clipping; matrices are trained."""
    config = {"r": 2, "alpha": 4, "target_modules": ["Attention"]}
    embedding = {"r": 3, "target_modules": ["Embedding"]}
    flags = {"GlobalFlags": {"csx.performance.micro_batch_size": 2}}
    init = init_config(callbacks=[{"Lora": {"lora_params": [config, embedding]}}, flags])
    source = build_source(LOADER, "test")
    model = reference_loop.train(init, map(source.batch, range(3)), source.batch_size)
    assert reference_loop.weights_sha256(model) == train_on_cluster(init, Shape(2))
    before = dict(make_model(init).named_parameters())
    changed = [n for n, p in model.named_parameters() if not torch.equal(p, before[n])]
    assert changed == [n for n in before if n.endswith(("lora_A", "lora_B"))]


@pytest.mark.parametrize("rate", ["dropout_rate", "attention_dropout_rate"])
def test_dropout_is_refused(rate: str) -> None:
    """Torch draws random numbers in another order, so a comparison is impossible."""
    with pytest.raises(SystemExit, match="draws no random numbers"):
        reference_loop.train(init_config(GPT | {rate: 0.1}), [], batch_size=22)


@pytest.mark.parametrize(
    ("init", "fit", "words"),
    [
        ({"optimizer": {"Lamb": {"lr": 0.1}}}, {"train_dataloader": LOADER}, "torch has no Lamb"),
        ({"optimizer": {"AdamV": {"lr": 0.1}}}, {"train_dataloader": LOADER}, "did you mean"),
        ({}, None, "no trainer.fit"),
    ],
)
def test_unsupported_configuration_gives_one_message(
    init: dict[str, Any],
    fit: dict[str, Any] | None,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An optimizer that torch lacks, a mistake in the file, missing data."""
    params = tmp_path / "params.yaml"
    trainer = {"init": init_config().dump() | init, "fit": fit}
    params.write_text(yaml.safe_dump({"trainer": trainer}))
    monkeypatch.setattr(sys, "argv", ["reference_loop.py", "--params", str(params), "--steps", "1"])
    with pytest.raises(SystemExit, match=words):
        reference_loop.main()


@pytest.mark.parametrize(
    ("batch_size", "size"), [(1, 1), (5, 1), (8, 1), (12, 1), (22, 3), (48, 6), (64, 8)]
)
def test_auto_micro_batch_size_without_a_cluster(batch_size: int, size: int) -> None:
    """``auto`` takes the same micro-batches on up to eight systems."""
    assert reference_loop.micro_batch_size(init_config(callbacks=[]), batch_size) == size


@pytest.mark.parametrize("policy", ["explore", "fill_wafer"])
def test_a_policy_that_depends_on_the_machine_is_refused(policy: str) -> None:
    """The loop has no wafer to fill."""
    flags = [{"ScopedTrainFlags": {"csx.performance.micro_batch_size": policy}}]
    with pytest.raises(SystemExit, match=policy):
        reference_loop.micro_batch_size(init_config(callbacks=flags), 64)
