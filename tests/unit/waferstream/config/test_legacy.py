"""The older layout of a file is the same configuration, or is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from waferstream.config.legacy import RUNCONFIG, convert_legacy
from waferstream.config.params import Params
from waferstream.config.phases import load_params
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError

LEGACY = """
train_input:
  data_processor: GptHDF5MapDataProcessor
  data_dir: [./train/0, ./train/1]
  batch_size: 120
  micro_batch_size: 60
  shuffle: True
  num_workers: 1
eval_input:
  data_processor: GptHDF5MapDataProcessor
  data_dir: ./val
  batch_size: 120
  micro_batch_size: none
model:
  name: gpt3
  hidden_size: 768
  num_hidden_layers: 10
  rotary_dim: null
  mixed_precision: True
  fp16_type: bfloat16
optimizer:
  optimizer_type: adamw
  betas: [0.9, 0.95]
  eps: 1e-8
  weight_decay: 0.1
  correct_bias: True
  max_gradient_norm: 1.0
  log_summaries: True
  learning_rate:
    - {scheduler: Linear, initial_learning_rate: 0, end_learning_rate: 6e-4, total_iters: 1525}
    - {scheduler: LinearLR, initial_learning_rate: 6e-4, end_learning_rate: 6e-5, total_iters: 7512}
runconfig:
  target_device: CSX
  enable_distributed: False
  max_steps: 9037
  eval_frequency: 903
  eval_steps: 1546
  checkpoint_steps: 903
  max_checkpoints: 3
  checkpoint_path: start.mdl
  load_checkpoint_states: model
  check_loss_values: False
  log_steps: 1
  logging: DEBUG
  wsc_log_level: {wgt: INFO}
  precision_opt_level: 0
  num_csx: 2
  num_wgt_servers: 4
  num_act_servers: 3
  job_labels: [team=a]
  mount_dirs: null
  lazy_initialization: True
  drop_data: False
  transfer_processes: 2
  model_dir: out
  seed: 7
"""

TRAINER = """
trainer:
  init:
    backend:
      backend_type: CSX
      cluster_config:
        {num_csx: 2, max_wgt_servers: 4, max_act_per_csx: 3, job_labels: {team: a}}
    model_dir: out
    seed: 7
    model: {name: gpt3, hidden_size: 768, num_hidden_layers: 10, rotary_dim: null}
    optimizer:
      AdamW: {betas: [0.9, 0.95], eps: 1e-8, weight_decay: 0.1, correct_bias: True}
    schedulers:
      - SequentialLR:
          schedulers:
            - LinearLR: {initial_learning_rate: 0, end_learning_rate: 6e-4, total_iters: 1525}
            - LinearLR: {initial_learning_rate: 6e-4, end_learning_rate: 6e-5, total_iters: 7512}
    precision:
      enabled: True
      fp16_type: bfloat16
      precision_opt_level: 0
      max_gradient_norm: 1.0
      log_loss_scale: True
    loop: {max_steps: 9037, eval_frequency: 903, eval_steps: 1546}
    checkpoint: {steps: 903}
    logging: {log_steps: 1, log_level: DEBUG, wsc_log_level: {wgt: INFO}}
    callbacks:
      - ScopedTrainFlags: {csx.performance.micro_batch_size: 60}
      - ScopedValidateFlags: {csx.performance.micro_batch_size: none}
      - ComputeNorm: {}
      - CheckLoss: null
      - KeepNCheckpoints: {n: 3}
      - LoadCheckpointStates: {load_checkpoint_states: model}
      - GlobalFlags: {csx.performance.transfer_processes: 2, csx.debug.lazy_initialization: True}
  fit:
    train_dataloader:
      data_processor: GptHDF5MapDataProcessor
      data_dir: [./train/0, ./train/1]
      batch_size: 120
      shuffle: True
      num_workers: 1
    val_dataloader: &val
      {data_processor: GptHDF5MapDataProcessor, data_dir: ./val, batch_size: 120}
    ckpt_path: start.mdl
  validate: {val_dataloader: *val, ckpt_path: start.mdl}
  validate_all: {val_dataloaders: *val, ckpt_paths: start.mdl}
"""


def test_both_layouts_of_one_run_are_equal(tmp_path: Path) -> None:
    """The 111M shape, written in both layouts, resolves to the same configuration."""
    legacy, trainer = tmp_path / "legacy.yaml", tmp_path / "trainer.yaml"
    legacy.write_text(LEGACY)
    trainer.write_text(TRAINER)
    params = load_params(legacy)
    assert params == load_params(trainer)
    assert params.trainer.init.micro_batch_policy("train").requested == 60
    assert params.trainer.init.precision.compute_dtype == "float32"
    assert params.trainer.init.schedulers[0].schedule.at(1525) == pytest.approx(6e-4)


def test_callback_order_is_independent_of_key_order() -> None:
    """The same file gives the same dump, key order aside."""
    data = yaml.safe_load(LEGACY)
    shuffled = {key: dict(reversed(data[key].items())) for key in reversed(data)}
    first, second = (
        validate(Params, convert_legacy(layout, "f"), "f").trainer.init.callbacks
        for layout in (data, shuffled)
    )
    assert first == second


def legacy(**sections: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "model": {"name": "gpt3"},
        "optimizer": {"optimizer_type": "SGD", "learning_rate": 0.1},
    }
    return {**base, **sections}


@pytest.mark.parametrize(
    ("rate", "schedulers"),
    [
        (0.1, [{"ConstantLR": {"learning_rate": 0.1}}]),
        ({"scheduler": "Constant", "learning_rate": 1}, [{"ConstantLR": {"learning_rate": 1}}]),
        ([{"scheduler": "StepLR", "gamma": 0.5}], [{"StepLR": {"gamma": 0.5}}]),
    ],
)
def test_a_learning_rate_becomes_schedulers(rate: Any, schedulers: list[Any]) -> None:
    """A number, one scheduler, or a list of one is a list of one scheduler."""
    data = legacy(optimizer={"optimizer_type": "SGD", "learning_rate": rate})
    assert convert_legacy(data, "f")["trainer"]["init"]["schedulers"] == schedulers


def test_the_source_is_left_as_it_was() -> None:
    """Converting does not change the data it is given."""
    data = yaml.safe_load(LEGACY)
    convert_legacy(data, "f")
    assert data == yaml.safe_load(LEGACY)


def test_training_alone_has_no_validation() -> None:
    """Without eval_input there is no validation, and without train_input no fit."""
    loader = {"data_processor": "Dummy", "batch_size": 1}
    trained = convert_legacy(legacy(train_input=loader), "f")["trainer"]
    assert trained["fit"] == {"train_dataloader": loader}
    assert "validate" not in trained
    evaluated = convert_legacy(legacy(eval_input=loader), "f")["trainer"]
    assert "fit" not in evaluated
    assert evaluated["validate"] == {"val_dataloader": loader}


@pytest.mark.parametrize("key", sorted(RUNCONFIG))
def test_every_runconfig_key_has_a_place(key: str) -> None:
    """No key of the table is sent to a place that the Trainer layout does not know."""
    with pytest.raises(ConfigError) as caught:
        validate(Params, convert_legacy(legacy(runconfig={key: object()}), "f"), "f")
    assert "unknown" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (legacy(runconfig={"max_step": 1}), "did you mean 'max_steps'?"),
        (legacy(runconfg={}), "did you mean 'runconfig'?"),
        (legacy(runconfig=[1]), "'runconfig' must be a mapping"),
        (legacy(runconfig={"dump_activations": True}), "not supported here"),
        (legacy(runconfig={"drop_data": True}), "csx.debug.drop_data"),
        (
            legacy(model={"name": "x", "compression": {"format": "mx8"}}),
            "not supported here",
        ),
        (legacy(wandb={"project": "x"}), "'wandb' is known"),
        (legacy(sparsity=1.5), "trainer.init.sparsity"),
        (legacy(model={}), "'trainer.init.model.name' is missing"),
        (legacy(optimizer={"learning_rate": 1}), "optimizer_type"),
        (legacy(optimizer={"optimizer_type": "Foo", "learning_rate": 1}), "unknown class 'Foo'"),
        (
            legacy(optimizer={"optimizer_type": "SGD", "learning_rate": [{"total_iters": 1}]}),
            "must name a scheduler",
        ),
    ],
)
def test_a_wrong_legacy_file_is_explained(data: dict[str, Any], complaint: str) -> None:
    """Unknown keys are met with the nearest known one, known but unsupported ones are named."""
    with pytest.raises(ConfigError) as caught:
        validate(Params, convert_legacy(data, "f.yaml"), "f.yaml")
    assert complaint in str(caught.value)


def test_what_is_switched_off_need_not_be_supported() -> None:
    """A false or empty value of an unsupported key says nothing."""
    data = legacy(runconfig={"dump_activations": False, "experimental": {}}, wandb={})
    validate(Params, convert_legacy(data, "f"), "f")
