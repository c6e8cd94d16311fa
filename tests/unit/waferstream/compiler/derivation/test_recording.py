"""One recording gives the step at every size that its Python allows."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import fx
from torch.nn import functional

from tests.support.errors import raises
from tests.support.models.tiny_models import SIZES, TINY_MODELS
from tests.support.programs.plain_steps import backward_step
from tests.support.roles.local_machine import BF16, FP32, Regression, random_batches
from waferstream.compiler.capture.captured import Captured
from waferstream.compiler.derivation.recording import Recording, record
from waferstream.compiler.storages import tensors_of
from waferstream.core.errors import ApplianceCompilationError
from waferstream.workload.models import training_example


class Changed(Regression):
    """A model whose Python looks at the samples."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return super().forward(self.change(x), y)


def recorded(model: Regression, size: int, *, for_all_sizes: bool = True) -> Recording:
    batch = list(random_batches(1, size)[0].items())
    return record(backward_step(model), model, batch, FP32, for_all_sizes=for_all_sizes)


def lines(captured: Captured) -> list[tuple[str, object, object]]:
    """Return the ops of a graph with layer, direction, and layout of what they make."""
    storages: dict[int, int] = {}
    return [
        (node.format_node(include_tensor_metadata=False) or "", _place(node), _made(node, storages))
        for node in captured.graph.nodes
        if node.op != "output"
    ]


def _place(node: fx.Node) -> tuple[object, ...]:
    return tuple(node.meta[key] for key in ("layer", "backward", "seed", "loss_scale"))


def _made(node: fx.Node, storages: dict[int, int]) -> list[tuple[object, ...]]:
    """Return dtype and layout of the tensors of a node; their storages are numbered in order."""
    return [
        (
            tensor.dtype,
            tuple(tensor.shape),
            tensor.stride(),
            tensor.storage_offset(),
            tensor.untyped_storage().nbytes(),
            storages.setdefault(tensor.untyped_storage()._cdata, len(storages)),
        )
        for tensor in tensors_of(node)
    ]


@pytest.mark.parametrize("size", [2, 3, 8])
def test_recording_for_all_sizes_is_that_of_one(size: int) -> None:
    """Ops, shapes, layers and directions are those of a recording at this size."""
    scaled = Changed(lambda x: x.reshape(x.shape[0] * 2, 2).reshape(-1, 4) / x.shape[0])
    expected = recorded(scaled, size, for_all_sizes=False).at(size)
    assert lines(recorded(scaled, 5).at(size)) == lines(expected)


class Sliced(Regression):
    """A model that slices the outputs of a layer."""

    def __init__(self, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.change = change

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        first = self.layers[0]
        return super().forward(self.change(first(x), first.bias), y)


@pytest.mark.parametrize(
    "change",
    [
        lambda made, _: torch.cat([made[:, 2:], made[:, :2]], 1),
        lambda made, _: made.unflatten(1, (2, 2))[:, 1:].repeat(1, 2, 1).flatten(1),
        lambda made, bias: made * bias[: made.shape[1]],
        lambda made, _: made[: made.shape[0]] * 2,
        lambda made, _: made.narrow(0, 0, made.shape[0]),
    ],
    ids=["index", "index-of-view", "weight", "computed-end", "narrow"],
)
def test_slice_is_left_out_where_torch_does(
    change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> None:
    """An index of all samples: the backward pass of a slice would copy the gradient."""
    expected = recorded(Sliced(change), 3, for_all_sizes=False).at(3)
    assert lines(recorded(Sliced(change), 5).at(3)) == lines(expected)


@pytest.mark.parametrize("name", [pytest.param("gemma2", marks=pytest.mark.nightly), "mixtral"])
def test_model_recorded_for_all_sizes_is_that_of_one(name: str) -> None:
    """Also where numbers of samples are arguments of ops, and where views share memory."""
    sizes = {"name": name, **SIZES, **TINY_MODELS[name], "num_hidden_layers": 1}
    of_all, of_one = (training_example(sizes, micro_batch_size=size) for size in (5, 3))
    recording = record(of_all.step, of_all.model, of_all.inputs, BF16, for_all_sizes=True)
    expected = record(of_one.step, of_one.model, of_one.inputs, BF16).at(3)
    assert lines(recording.at(3)) == lines(expected)


def test_recording_gives_each_caller_a_graph_of_its_own() -> None:
    """Passes edit the graph."""
    recording = recorded(Regression(), 4, for_all_sizes=False)
    first, second = recording.at(4), recording.at(4)
    first.graph.erase_node(first.graph.find_nodes(op="output")[0])
    assert second.graph.find_nodes(op="output")
    assert lines(recording.at(4)) == lines(second)


@pytest.mark.parametrize(
    ("change", "holds", "breaks"),
    [
        (lambda x: x * 2 if x.shape[0] > 3 else x, 6, 3),
        (lambda x: x * len(x), 4, 5),
        (lambda x: torch.stack([x[i] for i in range(x.shape[0])]), 4, 3),
    ],
    ids=["branch", "len", "loop"],
)
def test_recording_refuses_sizes_that_python_would_treat_otherwise(
    change: Callable[[torch.Tensor], torch.Tensor], holds: int, breaks: int
) -> None:
    """The decision was taken for four samples."""
    recording = recorded(Changed(change), 4)
    assert recording.at(holds).inputs[0].shape == (holds, 4)
    with raises(ApplianceCompilationError, "step-depends-on-micro-batch-size"):
        recording.at(breaks)


def test_recording_asks_for_another_one_of_one_sample() -> None:
    """The symbol of a recording stands for two samples and more, and shows no decision on one."""

    def of_size(size: int) -> Recording:
        asked.append(size)
        return recorded(model, size)

    asked: list[int] = []
    model = Changed(lambda x: x * 2 if x.shape[0] == 1 else x)
    with raises(ApplianceCompilationError, "step-depends-on-micro-batch-size"):
        recorded(model, 3).at(1)
    recording = replace(recorded(model, 3), of_size=of_size)
    assert lines(recording.at(2)) == lines(recorded(model, 2).at(2))
    assert not asked
    assert lines(recording.at(1)) == lines(recorded(model, 1, for_all_sizes=False).at(1))
    assert asked == [1]


def test_recording_asks_for_another_one_where_torch_takes_the_samples_as_a_number() -> None:
    """Its C++ reads extents, which is no decision of the user's Python."""

    def of_size(size: int) -> Recording:
        return recorded(model, size, for_all_sizes=False)

    model = Changed(lambda x: functional.interpolate(x[:, None], size=4, mode="linear")[:, 0])
    recording = replace(recorded(model, 4), of_size=of_size)
    for size in (4, 6):
        assert lines(recording.at(size)) == lines(of_size(size).at(size))


def test_recording_of_one_size_asks_for_any_other() -> None:
    """It needs another run of the user's Python."""
    model = Regression()
    alone = recorded(model, 4, for_all_sizes=False)
    with raises(ApplianceCompilationError, "step-depends-on-micro-batch-size"):
        alone.at(3)
    recording = replace(alone, of_size=lambda size: recorded(model, size, for_all_sizes=False))
    assert lines(recording.at(3)) == lines(recorded(model, 3, for_all_sizes=False).at(3))


def test_failed_recording_for_all_sizes_names_the_way_out() -> None:
    """A step that needs a number of samples can be recorded at one size."""

    def step(batch: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        raise TypeError("needs an int")

    batch = list(random_batches(1, 4)[0].items())
    with raises(ApplianceCompilationError, "traced-step-failed") as caught:
        record(step, Regression(), batch, FP32, for_all_sizes=True)
    assert "micro_batch_size" in (caught.value.remedy or "")
