"""The JSON form of a compiled program: exact, verified, and never executed while it is read."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.programs.kernels import run_kernels
from tests.support.programs.plain_steps import backward_step
from tests.support.roles.local_machine import FP32
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.compiler.compiled import (
    Compiled,
    DamagedArtifactError,
    compiled_from_json,
    compiled_to_json,
)
from waferstream.core.program.kernel_source import KernelSource


class Constants(nn.Module):
    """A model with dropout, a mask buffer, and an expanded and a strided constant."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.mask: torch.Tensor
        self.register_buffer("mask", torch.eye(4, dtype=torch.bool))
        self.row: torch.Tensor
        self.register_buffer("row", torch.arange(4.0).expand(4, 4))
        self.turned: torch.Tensor
        self.register_buffer("turned", torch.arange(16.0).bfloat16().view(4, 4).t()[1:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = nn.functional.dropout(self.linear(x), 0.1)
        rows = torch.where(self.mask, self.row, 1.0) @ hidden.t()
        return (rows.sum() + self.turned.float().sum()).square()


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    model = Constants()
    request = CompileRequest(FP32, micro_batch_size=4, num_micro_batches=1, target="1 system")
    inputs = [("x", torch.ones(4, 4))]
    return compile_step(backward_step(model), model, inputs, request)[0]


def again(compiled: Compiled) -> Compiled:
    return compiled_from_json(compiled_to_json(compiled), compiled.program.digest)


def test_round_trip_keeps_program_and_kernel_text(compiled: Compiled) -> None:
    """Types included: named tuples, tuples and footprints."""
    found = again(compiled)
    assert found.program == compiled.program
    assert repr(found.program) == repr(compiled.program)
    for one, other in zip(found.kernels, compiled.kernels, strict=True):
        assert (one.text, dict(one.modules)) == (other.text, dict(other.modules))


def test_file_names_the_kind_of_a_program_mode(compiled: Compiled) -> None:
    """Files of earlier releases are read."""
    content = json.loads(compiled_to_json(compiled))["content"]["program"]
    assert content["mode"] == compiled.program.kind
    assert "kind" not in content


def test_round_trip_keeps_kernels_of_short_micro_batches() -> None:
    """They are a second set of segments and kernels; an artifact without them is damaged."""
    model = nn.Linear(4, 4)
    request = CompileRequest(FP32, 3, num_micro_batches=2, target="1 system", num_short=1)
    step = backward_step(model, torch.mean)
    made = compile_step(step, model, [("x", torch.ones(3, 4))], request)[0]
    assert made.short is not None
    found = again(made).short
    assert found is not None
    assert found.segments == made.short.segments != made.program.segments
    assert [k.text for k in found.kernels] == [k.text for k in made.short.kernels]
    with pytest.raises(DamagedArtifactError, match="short micro-batches"):
        again(replace(made, short=None))


def test_round_trip_keeps_constants_with_their_layout(compiled: Compiled) -> None:
    """Bits, dtype, shape, strides and offset, of views too."""
    found = again(compiled)
    constants = [
        (kernel.constants[name], tensor)
        for kernel, original in zip(found.kernels, compiled.kernels, strict=True)
        for name, tensor in original.constants.items()
    ]
    assert {tensor.dtype for _, tensor in constants} >= {torch.bool, torch.bfloat16}
    assert any(0 in tensor.stride() for _, tensor in constants)
    for tensor, original in constants:
        assert torch.equal(tensor, original)
        assert (tensor.dtype, tensor.stride()) == (original.dtype, original.stride())
        assert tensor.storage_offset() == original.storage_offset()


def test_round_trip_computes_the_same_bits(compiled: Compiled) -> None:
    """Loss and gradients of the kernels that are built from JSON."""
    model, batch = Constants(), {"x": torch.randn(4, 4)}
    results, gradients = run_kernels(compiled, model, batch, key=3)
    again_results, again_gradients = run_kernels(again(compiled), model, batch, key=3)
    assert torch.equal(results[0], again_results[0])
    assert all(torch.equal(gradients[name], again_gradients[name]) for name in gradients)


@pytest.mark.parametrize(
    "constant",
    [torch.empty(0, 3), torch.tensor(7, dtype=torch.uint16), torch.ones(2, dtype=torch.complex64)],
    ids=["empty", "uint16", "complex"],
)
def test_round_trip_keeps_unusual_constants(compiled: Compiled, constant: torch.Tensor) -> None:
    """A tensor without elements has no storage; some dtypes cannot be streamed."""
    kernel = KernelSource("def forward(self): pass", {}, {"it": constant})
    kernels = (kernel,) * len(compiled.kernels)
    found = again(Compiled(compiled.program, kernels)).kernels[0].constants["it"]
    assert (found.shape, found.dtype) == (constant.shape, constant.dtype)
    assert found.tolist() == constant.tolist()


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "null", "1", '{"format": 1}', '{"format": 4, "seal": "", "content": {}}'],
)
def test_foreign_text_is_refused(text: str) -> None:
    """Every defect gives the same kind of error."""
    with pytest.raises(DamagedArtifactError):
        compiled_from_json(text, "cs_1")


def test_another_digest_is_refused(compiled: Compiled) -> None:
    """The content is whole, but not what was asked for."""
    with pytest.raises(DamagedArtifactError):
        compiled_from_json(compiled_to_json(compiled), "cs_1")


def change_kernel(content: dict[str, Any]) -> None:
    content["kernels"][0]["text"] += "\nprint()"


def change_shape(content: dict[str, Any]) -> None:
    content["program"]["parameters"][0]["shape"] = [1]


@pytest.mark.parametrize("change", [change_kernel, change_shape])
def test_changed_content_is_refused(compiled: Compiled, change: Any) -> None:
    """The seal covers kernels and program."""
    data = json.loads(compiled_to_json(compiled))
    change(data["content"])
    with pytest.raises(DamagedArtifactError):
        compiled_from_json(json.dumps(data), compiled.program.digest)


def test_artifact_of_a_stranger_is_refused(
    compiled: Compiled, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels are code, so those that another user has compiled do not run."""
    text = compiled_to_json(compiled)
    monkeypatch.setenv("WAFERSTREAM_STATE", str(tmp_path))
    with pytest.raises(DamagedArtifactError):
        compiled_from_json(text, compiled.program.digest)


def test_kernel_may_import_numerics_only(compiled: Compiled) -> None:
    """An artifact cannot name any other module of the host."""
    kernel = KernelSource("", {"run": ("os", "system")}, {})
    foreign = Compiled(compiled.program, (kernel,) * len(compiled.kernels))
    with pytest.raises(DamagedArtifactError):
        again(foreign)
