"""Captured steps: a few layers instead of all, and the cache file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from memoryx.optim.cost import UpdateCost
from tests.support.models.tiny_models import SIZES, TINY_MODELS
from tests.support.programs.cstorch_program import running_backend
from tests.support.runs.tiny_training import GPT, init_config
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.derivation.depth import CAPTURED_LAYERS, Stack, is_like
from waferstream.config.params import InitConfig
from waferstream.config.sections.init import DataLoaderConfig
from waferstream.core.program.program import Program
from waferstream.numerics.precision import StreamPrecision
from waferstream.simulation.capture import example_batch
from waferstream.simulation.captured import CapturedStep, load_captured, store_captured
from waferstream.simulation.step_at_sizes import capture_shallow, shapes_of
from waferstream.workload.models import build_model, model_config


def captured(name: str, num_layers: int, size: int = 2) -> Program:
    """Capture a training step of the smallest model of a family."""
    sizes: dict[str, Any] = {"name": name, **SIZES, **TINY_MODELS[name]}
    config = sizes | {"num_hidden_layers": num_layers}
    with torch.device("meta"):
        model = build_model(config, seed=0)
    features = model_config(config).features()

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        loss = model(**dict(zip([f.name for f in features], batch, strict=True)))
        loss.backward()
        return [loss]

    inputs = [(f.name, torch.zeros(size, *f.shape, dtype=f.dtype)) for f in features]
    request = CompileRequest(StreamPrecision(), size, 1, "a test")
    return compile_step(step, model, inputs, request)[0].program


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["dit"])
def test_stack_deepened_equals_a_capture_of_all_layers(name: str) -> None:
    """All layers of DiT read one condition, and send gradients to it."""
    shallow = captured(name, CAPTURED_LAYERS)
    assert is_like(Stack.of(shallow, 7).deepened(shallow), captured(name, 7))


def test_tags_by_layer_do_not_keep_layers_from_being_few() -> None:
    """Those of layers that are not captured select nothing."""
    model = {**GPT, "num_hidden_layers": 7}
    tags = [{"params": f"*decoder.{layer}.*", "tag": f"layer {layer}"} for layer in (0, 6)]
    init = init_config(model=model, optimizer={"AdamW": {"params": tags}})
    features = model_config(model).features()
    batch = {f.name: torch.zeros(2, *f.shape, dtype=f.dtype) for f in features}
    with running_backend() as backend:
        shallow = capture_shallow(init, backend, batch, (2,), shapes_of(init))
    assert shallow is not None


@pytest.fixture(scope="module")
def step() -> CapturedStep:
    small, large = (captured("gpt2", 1, size) for size in (2, 4))
    return CapturedStep(small, large, UpdateCost(8, 15), waits_for_all=True, tokens_per_sample=16)


def test_load_captured_restores_the_step(tmp_path: Path, step: CapturedStep) -> None:
    store_captured(step, tmp_path / "step.json")
    loaded = load_captured(tmp_path / "step.json")
    assert loaded == step
    assert loaded is not None
    assert loaded.program.at(7, 3) == step.program.at(7, 3)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\x80\x04", b'{"small": {}}'])
def test_load_captured_ignores_a_damaged_file(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "step.json").write_bytes(damage)
    assert load_captured(tmp_path / "step.json") is None


def test_load_captured_ignores_a_truncated_file(tmp_path: Path, step: CapturedStep) -> None:
    path = tmp_path / "step.json"
    store_captured(step, path)
    path.write_bytes(path.read_bytes()[:-100])
    assert load_captured(path) is None


def test_step_that_cannot_be_kept_is_captured_again(
    tmp_path: Path, step: CapturedStep, caplog: pytest.LogCaptureFixture
) -> None:
    """The home of a container may be read-only."""
    (tmp_path / "file").write_text("")
    store_captured(step, tmp_path / "file" / "step.json")
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_load_captured_without_a_file(tmp_path: Path) -> None:
    assert load_captured(tmp_path / "step.json") is None


def test_example_batch_has_whole_groups_of_samples() -> None:
    """Four of them, for the larger of the two sizes."""
    model = {"name": "dpr", "group_size": 3, "encoder": {"vocab_size": 8, **SIZES}}
    data = {"data_processor": "DPRHDF5DataProcessor", "data_dir": "none", "batch_size": 6}
    init = InitConfig.model_validate({"model": model})
    batch = example_batch(init, DataLoaderConfig.model_validate(data))
    assert {len(tensor) for tensor in batch.values()} == {4 * 3}
