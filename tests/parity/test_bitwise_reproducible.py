"""Training is bitwise reproducible: every cluster ends with the weights of a plain PyTorch loop.

Digests are compared within one test run and never stored: they differ between versions of torch
and between processors.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from appliance.coordinator.commands import HashWeights, Run
from appliance.elaboration.elaborate import ClusterSize, elaborate
from appliance.local import LocalRoles
from csnode.gradients import GradientSums, LeafMemory
from memoryx.optim.rule import RULES
from scripts import reference_loop
from scripts.reference_loop import tree_sum, weights_sha256
from tests.support.nightly import nightly
from tests.support.plain_torch.plain_loop import (
    SHALLOW,
    STEPS,
    by_shape,
    default_reference,
    reference_digest,
    source,
)
from tests.support.roles.local_machine import (
    BF16,
    FP32,
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
    start,
)
from tests.support.runs.tiny_training import (
    GPT,
    NUM_MICRO_BATCHES,
    Shape,
    init_config,
    train_on_cluster,
)
from waferstream.config.params import InitConfig
from waferstream.core.optimizer import OptimizerSpec
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.commands import Install
from waferstream.core.roles.role import Job, Value
from waferstream.machine.hardware import MachineSpec, SwarmXSpec
from waferstream.numerics.precision import StreamPrecision
from waferstream.training.setup.model import make_optimizer
from waferstream.workload.models import build_model

DROPOUT = GPT | {
    **SHALLOW,
    "dropout_rate": 0.2,
    "embedding_dropout_rate": 0.1,
    "attention_dropout_rate": 0.1,
}

# Every number of systems with every fan-out, and 1 and 3 servers with either.
SHAPES = [
    Shape(num_csx, fan_out, servers)
    for num_csx, fan_out, servers in [
        *((1, 2, 3), (1, 3, 1), (1, 4, 3)),
        *((2, 2, 1), (2, 3, 3), (2, 4, 1)),
        *((3, 2, 3), (3, 3, 1), (3, 4, 3)),
        *((4, 2, 1), (4, 3, 3), (4, 4, 1)),
        *((8, 2, 3), (8, 3, 1), (8, 4, 3)),
    ]
]


class Machine:
    """One compiled program, to be trained on clusters of any size without compiling again."""

    def __init__(self, config: dict[str, Any]) -> None:
        init = init_config(config)
        self.model = build_model(init.model.dump(), init.seed)
        self.update = self._update(init)
        first = source().batch(0)
        self.compiled = compile_model(self.model, first, NUM_MICRO_BATCHES, precision=BF16)

    def _update(self, init: InitConfig) -> OptimizerSpec:
        names: dict[torch.Tensor, str] = {
            parameter: name for name, parameter in self.model.named_parameters()
        }
        optimizer, schedulers = make_optimizer(init, self.model)
        limit = init.precision.max_gradient_norm
        return replace(optimizer.spec(names, schedulers), max_gradient_norm=limit)

    def with_optimizer(self, name: str) -> "Machine":
        """Return the same program with another update."""
        machine = copy(self)
        machine.update = self._update(init_config(optimizer={name: {}}))
        return machine

    def train(
        self,
        size: ClusterSize,
        fan_out: int = 4,
        seed: int = 0,
        source: Callable[[], Any] = source,
        data_seed: int = 0,
    ) -> str:
        machine = MachineSpec(swarmx=SwarmXSpec(fan_out=fan_out))
        installed = installation(self.compiled, source, self.update, size, machine)
        feed = replace(installed.feed, seed=data_seed)
        installed = replace(installed, feed=feed)
        cluster = start(installed, self.model, size, machine, seed)
        cluster.do(Run(ProgramKind.TRAIN, 1, STEPS))
        return cluster.do(HashWeights())


@pytest.fixture(scope="module")
def gpt() -> Machine:
    return Machine(GPT)


@pytest.fixture(scope="module")
def shallow_gpt() -> Machine:
    return Machine(GPT | SHALLOW)


@pytest.fixture(scope="module")
def gpt_with_dropout() -> Machine:
    return Machine(DROPOUT)


@by_shape(SHAPES)
def test_weights_do_not_depend_on_the_cluster_shape(shape: Shape, gpt: Machine) -> None:
    """Number of systems, fan-out and weight servers do not change the result."""
    size = ClusterSize(shape.num_csx, shape.servers)
    assert gpt.train(size, shape.fan_out) == default_reference()


@pytest.mark.parametrize("lanes", [1, 2, 3])
@pytest.mark.parametrize("num_csx", [1, 3])
def test_weights_do_not_depend_on_lanes(num_csx: int, lanes: int, gpt: Machine) -> None:
    """Micro-batches side by side on a node give the bits of micro-batches in sequence."""
    assert gpt.train(ClusterSize(num_csx, 2, lanes=lanes)) == default_reference()


@pytest.mark.parametrize("activation_bytes", [1, 400_000, 1 << 40])
def test_weights_do_not_depend_on_rounds(activation_bytes: int, gpt: Machine) -> None:
    """However many micro-batches the host's memory puts into a round."""
    size = ClusterSize(2, 2, lanes=2, activation_bytes=activation_bytes)
    assert gpt.train(size) == default_reference()


def pair(width: int) -> nn.Module:
    """Return a layer of two matrices, the second one behind a bias in its bucket."""
    return nn.Sequential(nn.Linear(width, width + 2), nn.Tanh(), nn.Linear(width + 2, width))


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("width", [5, 33])
def test_weights_do_not_depend_on_where_they_lie_in_a_bucket(rows: int, width: int) -> None:
    """Products of torch have other bits where an operand or the result lies at an odd address.

    Biases of odd sizes move what follows them in its bucket, and servers part the buckets.
    """
    batches, model = random_batches(2, 8 * rows, width), Regression(width, make=pair)
    assert digests_of(model, batches, FP32) == {plain_digest(model, batches, 8)}


@pytest.mark.parametrize("width", [*nightly(5), 33])
@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        (BF16, torch.bfloat16),
        (StreamPrecision("float16", "float16"), torch.float16),
        (StreamPrecision("bfloat16", "float32"), torch.float32),
        (StreamPrecision("cbfloat16", "cbfloat16"), torch.float32),
        (StreamPrecision("bfloat16", "bfloat16", rounding="stochastic"), torch.float32),
    ],
    ids=["bf16", "fp16", "bf16 streams", "cbfloat16", "stochastic rounding"],
)
def test_weights_do_not_depend_on_the_dtype_of_gradients(
    width: int, precision: StreamPrecision, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of single micro-batches, as of eight systems, travel as kernels return them."""
    returned, offer = set[torch.dtype](), GradientSums.offer

    def spy(
        sums: GradientSums, index: int, gradients: Mapping[str, torch.Tensor], memory: LeafMemory
    ) -> None:
        returned.update(gradient.dtype for gradient in gradients.values())
        offer(sums, index, gradients, memory)

    monkeypatch.setattr(GradientSums, "offer", spy)
    batches, model = random_batches(2, 16, width), Regression(width, make=pair)
    assert len(digests_of(model, batches, precision)) == 1
    assert returned == {dtype}


def digests_of(
    model: nn.Module, batches: list[dict[str, torch.Tensor]], precision: StreamPrecision
) -> set[str]:
    """Return the digests of clusters of several shapes, after ``STEPS`` steps of plain SGD."""
    digests = set()
    compiled = compile_model(model, batches[0], num_micro_batches=8, precision=precision)
    for size in (ClusterSize(1), ClusterSize(1, 3), ClusterSize(3, 2), ClusterSize(8)):
        installed = installation(compiled, lambda: batches, sgd(model), size)
        cluster = start(installed, model, size)
        cluster.do(Run(ProgramKind.TRAIN, 1, STEPS))
        digests.add(cluster.do(HashWeights()))
    return digests


def plain_digest(
    model: nn.Module, batches: Sequence[Mapping[str, torch.Tensor]], count: int
) -> str:
    """Return the digest after ``STEPS`` steps of plain SGD, each on ``count`` micro-batches."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = list(model.parameters())
    for step in range(STEPS):
        parts = [t.chunk(count) for t in batches[step % len(batches)].values()]

        def gradients(index: int, parts: Any = parts) -> list[torch.Tensor]:
            x, y = (part[index].clone() for part in parts)  # each at an address of its own
            return list(torch.autograd.grad(model(x, y) / count, parameters))

        for parameter, gradient in zip(parameters, tree_sum(gradients, count), strict=True):
            parameter.grad = gradient
        optimizer.step()
    return weights_sha256(model)


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_weights_do_not_depend_on_input_workers(num_workers: int, gpt: Machine) -> None:
    """Every worker serves its nodes the same rows of the global batch."""
    assert gpt.train(ClusterSize(3, num_workers=num_workers)) == default_reference()


def shuffled_samples() -> torch.utils.data.DataLoader[Any]:
    batches = [source().batch(step) for step in range(2)]
    samples = [{name: t[i] for name, t in batch.items()} for batch in batches for i in range(22)]
    data: Any = samples
    return torch.utils.data.DataLoader(data, batch_size=22, shuffle=True)


@pytest.mark.parametrize(("num_csx", "num_workers"), [(1, 1), (2, 2), (3, 3), (4, 2)])
def test_shuffled_loader_equals_the_plain_loop(
    num_csx: int, num_workers: int, gpt: Machine
) -> None:
    """A torch DataLoader with shuffle=True: every input worker reads the order of one seed."""
    torch.manual_seed(5)
    loader = shuffled_samples()
    batches = [batch for _ in range(2) for batch in loader]
    expected = reference_loop.weights_sha256(reference_loop.train(init_config(), batches[:3], 22))
    size = ClusterSize(num_csx, num_workers=num_workers)
    assert gpt.train(size, source=shuffled_samples, data_seed=5) == expected


def test_second_run_ends_with_the_same_weights(gpt_with_dropout: Machine) -> None:
    """The result does not depend on time, memory contents or earlier runs."""
    size = ClusterSize(3, 2, lanes=2)
    assert gpt_with_dropout.train(size) == gpt_with_dropout.train(size)


def test_digest_depends_on_the_weights() -> None:
    """More steps give another digest."""
    assert reference_digest(init_config(), STEPS + 1) != default_reference()


def test_dropout_does_not_depend_on_the_cluster(gpt_with_dropout: Machine) -> None:
    """Random streams are keyed by seed, step, micro-batch and op."""
    sizes = [
        ClusterSize(n, servers, lanes=n % 3 + 1) for n in (1, 2, 3, 4, 8) for servers in (1, 3)
    ]
    sizes += [ClusterSize(n, lanes=2, activation_bytes=1) for n in (1, 3)]
    assert len({gpt_with_dropout.train(size) for size in sizes}) == 1


def test_dropout_depends_on_the_seed(gpt_with_dropout: Machine) -> None:
    """Another seed gives other numbers from the same initial weights."""
    size = ClusterSize(2)
    assert gpt_with_dropout.train(size, seed=1) != gpt_with_dropout.train(size, seed=2)


class Dice(Regression):
    """Model whose loss is a sum of random numbers."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x).sum() + 0 * super().forward(x, y)


def test_steps_and_micro_batches_draw_different_numbers() -> None:
    """With constant data no two draws are equal, and a repeated job repeats them."""
    same = {name: torch.ones(6, 4) for name in ("x", "y")}
    compiled = compile_model(Dice(), same, num_micro_batches=3, trains=False)
    size = ClusterSize(2)
    roles = LocalRoles(elaborate(compiled.program.parameters, size, MachineSpec(), seed=0))
    roles.do(None, Install(installation(compiled, lambda: [same], None, size)))

    def drawn() -> dict[tuple[int, int], tuple[Value, ...]]:
        reports = roles.run(Job(ProgramKind.EVAL, 1, 4))
        return {key: value for report in reports for key, value in report.results.items()}

    first = drawn()
    assert len(set(first.values())) == len(first) == 4 * 3
    assert drawn() == first


@pytest.mark.parametrize("name", RULES)
def test_weights_of_every_optimizer_do_not_depend_on_the_cluster(
    name: str, shallow_gpt: Machine
) -> None:
    """Systems, servers and fan-out do not change the update of any rule."""
    machine = shallow_gpt.with_optimizer(name)
    small, large = machine.train(ClusterSize(1)), machine.train(ClusterSize(4, 3), fan_out=2)
    assert small == large


@pytest.fixture(scope="module")
def uninterrupted() -> str:
    return train_on_cluster(init_config(DROPOUT), Shape(4), 6)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Digest and checkpoint of the first three of six steps."""
    path = tmp_path_factory.mktemp("half") / "checkpoint.mdl"
    digest = train_on_cluster(init_config(DROPOUT), Shape(2, servers=2), 3, save=path)
    return digest, path


@by_shape([Shape(1), Shape(3, 2, 3), Shape(8, 4, 2)])
def test_resumed_run_equals_an_uninterrupted_one(
    shape: Shape, uninterrupted: str, half: tuple[str, Path]
) -> None:
    """Three steps, a checkpoint, and three more on another cluster are six steps."""
    digest, path = half
    resumed = train_on_cluster(init_config(DROPOUT), shape, 3, restore=path)
    assert resumed == uninterrupted != digest
