"""``cstorch.Trainer``: a torch model, optimizer and loader as they are."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import TensorDataset

import cstorch
from appliance.spec import ClusterSpec, RuntimeSpec
from cstorch import backends
from tests.support.errors import raises
from waferstream.core.errors import ConfigError, ProgramOrderError, WaferStreamError

LOCAL = ClusterSpec(runtime=RuntimeSpec(kind="local"))


@pytest.fixture(autouse=True)
def plain_precision() -> Iterator[None]:
    """Compute in fp32, as the plain loop does; end the backend."""
    cstorch.amp.enable_mixed_precision(False)
    backends.csx.performance.micro_batch_size = 8
    yield
    backend = cstorch.current_backend(raise_exception=False)
    if backend is not None:
        backend.shutdown()
    backends.reset()


def data() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(24, 4, generator=generator)
    return TensorDataset(inputs, inputs.sum(dim=1, keepdim=True))


def tuples() -> torch.utils.data.DataLoader[Any]:
    return torch.utils.data.DataLoader(data(), batch_size=8)


def dicts() -> list[dict[str, torch.Tensor]]:
    return [{"input": x, "labels": y} for x, y in tuples()]


def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, 1)


def config(device: Any = "cs3", **options: Any) -> cstorch.CSConfig:
    return cstorch.CSConfig(target_device=device, max_steps=5, cluster=LOCAL, **options)


def plain_weight(make: type[torch.optim.Optimizer], **options: Any) -> torch.Tensor:
    """Return the weight that a plain loop ends with; Adam is fused, as the reference loop's is."""
    model = layer()
    optimizer = make(model.parameters(), **options)
    for group in optimizer.param_groups:
        if make in (torch.optim.Adam, torch.optim.AdamW):
            group["fused"] = True
    for step, (x, y) in enumerate([*tuples(), *tuples()]):
        if step < 5:
            functional.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    return model.weight.detach()


OPTIMIZERS: Mapping[str, tuple[Any, dict[str, Any]]] = {
    "Adam": (torch.optim.Adam, {"lr": 0.05}),
    "AdamW": (torch.optim.AdamW, {"lr": 0.05}),
    "SGD": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 0.05}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_torch_optimizer_is_taken_with_its_defaults(name: str) -> None:
    """The weights are those of the plain loop, bit for bit, and are read from the model."""
    make, options = OPTIMIZERS[name]
    model = layer()
    trainer = cstorch.Trainer(
        model=model,
        optimizer=make(model.parameters(), **options),
        config=config(),
        loss_fn=functional.mse_loss,
    )
    losses = trainer.fit(tuples())
    assert len(losses) == 5
    assert losses[3] < losses[0]  # of the same batch
    assert torch.equal(model.weight.detach(), plain_weight(make, **options))


@pytest.mark.parametrize("device", ["cs2", "csx", "cpu"])
def test_batches_may_be_dicts_on_any_device(device: str) -> None:
    """Their target is found by its key; a new Trainer ends the backend of the one before.

    Tokenizers and collators of transformers return a UserDict.
    """
    weights = []
    for source in (tuples(), dicts(), [UserDict(batch) for batch in dicts()]):
        model = layer()
        trainer = cstorch.Trainer(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.05),
            config=config(device),
            loss_fn=functional.mse_loss,
        )
        trainer.fit(source)
        assert trainer.backend is cstorch.current_backend()
        weights.append(model.weight)
    for weight in weights[1:]:
        assert torch.equal(weights[0].detach(), weight.detach())


class Scored(nn.Module):
    """A model that returns its loss in one of several forms."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.layer = layer()
        self.form = form

    def forward(self, input: torch.Tensor, labels: torch.Tensor) -> Any:
        output = self.layer(input)
        loss = functional.mse_loss(output, labels)
        return {"tensor": loss, "dict": {"loss": loss, "logits": output}, "logits": output}[
            self.form
        ]


def trainer_of(model: nn.Module, **options: Any) -> cstorch.Trainer:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    return cstorch.Trainer(model=model, optimizer=optimizer, config=config("cpu"), **options)


@pytest.mark.parametrize("form", ["tensor", "dict"])
@pytest.mark.parametrize("source", [tuples, dicts])
def test_loss_may_be_the_output_of_the_model(form: str, source: Any) -> None:
    """A loader may be given as a function that makes it."""
    losses = trainer_of(Scored(form)).fit(source)
    assert losses[3] < losses[0]  # of the same batch


def test_batch_that_the_model_does_not_take_needs_loss_fn() -> None:
    """A tuple of input and target is refused before anything is captured."""
    with raises(ConfigError, "batch-does-not-fit-model") as caught:
        trainer_of(layer()).fit([(torch.ones(8, 4), torch.ones(8, 1))])
    assert "loss_fn" in str(caught.value.remedy)


def test_output_that_is_no_scalar_needs_loss_fn() -> None:
    """The error names the argument."""
    with raises(ConfigError, "loss-not-scalar") as caught:
        trainer_of(Scored("logits")).fit(tuples())
    assert "loss_fn" in str(caught.value.remedy)


class Autoencoder(nn.Module):
    """A model whose target is its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(self.layer(input), input)


def test_batch_may_be_a_tensor_where_no_target_is_due() -> None:
    """It is the one argument of the model."""
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    losses = []
    for batch in (inputs, (inputs,)):
        torch.manual_seed(0)
        losses.append(trainer_of(Autoencoder()).fit([batch] * 5))
    assert losses[0] == losses[1]
    assert losses[0][4] < losses[0][0]


def test_batch_of_another_kind_is_refused() -> None:
    """The error says what a batch is."""
    with raises(ConfigError, "batch-not-tuple-or-dict") as caught:
        trainer_of(layer(), loss_fn=functional.mse_loss).fit([torch.ones(8, 4)])
    assert caught.value.value == "Tensor"
    with raises(ConfigError, "target-not-found"):
        trainer_of(layer(), loss_fn=functional.mse_loss).fit([{"input": torch.ones(8, 4)}])


def test_unknown_settings_are_refused() -> None:
    """CSConfig knows its keys and devices."""
    with raises(ConfigError, "not-one-of"):
        cstorch.CSConfig(target_device="cs4")  # type: ignore[arg-type]
    with raises(ConfigError, "out-of-range"):
        cstorch.CSConfig(max_steps=0)
    with raises(ConfigError, "unknown-key"):
        cstorch.CSConfig(max_step=1)  # type: ignore[call-arg]


def test_weights_stay_in_the_model_after_shutdown() -> None:
    """The cluster is no longer needed to read them."""
    model = layer()
    trainer = trainer_of(model, loss_fn=functional.mse_loss)
    trainer.fit(tuples())
    trainer.shutdown()
    assert torch.equal(model.weight.detach(), plain_weight(torch.optim.SGD, lr=0.05))
    with pytest.raises((RuntimeError, WaferStreamError)):
        trainer.fit(tuples())


class WithLogits(nn.Module):
    """A model that returns (logits, loss), as nanoGPT and minGPT do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = layer()

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logits = self.layer(x)
        return logits, functional.mse_loss(logits, y)


def test_the_only_scalar_of_a_tuple_is_the_loss() -> None:
    model = WithLogits()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    trainer = cstorch.Trainer(model=model, optimizer=optimizer, config=config())
    trainer.fit(tuples())
    trainer.shutdown()
    assert torch.equal(model.layer.weight.detach(), plain_weight(torch.optim.SGD, lr=0.05))


def test_loss_of_a_single_sample_is_no_scalar() -> None:
    """A loss for each sample has one element where a micro-batch has one sample."""

    def of_samples(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return functional.mse_loss(output, target, reduction="none").mean(1)

    backends.csx.performance.micro_batch_size = 1
    model = layer()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    trainer = cstorch.Trainer(model=model, optimizer=optimizer, config=config(), loss_fn=of_samples)
    with raises(ConfigError, "loss-not-scalar"):
        trainer.fit(tuples())


@pytest.mark.parametrize("end", [lambda ended: ended.shutdown(), lambda _: trainer_of(layer())])
def test_ended_trainer_refuses_to_train(end: Callable[[cstorch.Trainer], object]) -> None:
    """After its shutdown, or once there is another one, whose backend it would train on."""
    trainer = trainer_of(layer(), loss_fn=functional.mse_loss)
    trainer.fit(tuples())
    end(trainer)
    with raises(ProgramOrderError, "trainer-ended"):
        trainer.fit(tuples())


class OfDict(nn.Module):
    """A model whose one argument is the batch."""

    def __init__(self, has_loss: bool) -> None:
        super().__init__()
        self.layer = layer()
        self.has_loss = has_loss

    def forward(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        output: torch.Tensor = self.layer(batch["input"])
        return functional.mse_loss(output, batch["labels"]) if self.has_loss else output


@pytest.mark.parametrize("has_loss", [True, False])
def test_dict_may_be_the_one_argument_of_the_model(has_loss: bool) -> None:
    """Where the model needs one argument, of another name than any entry."""
    model = OfDict(has_loss)
    trainer_of(model, loss_fn=None if has_loss else functional.mse_loss).fit(dicts())
    assert torch.equal(model.layer.weight.detach(), plain_weight(torch.optim.SGD, lr=0.05))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
def test_parameters_that_are_not_real_are_refused(dtype: torch.dtype) -> None:
    """MemoryX would hold other numbers."""
    model = layer()
    model.extra = nn.Parameter(torch.ones(2, dtype=dtype), requires_grad=False)
    with raises(ConfigError, "parameter-not-real"):
        trainer_of(model)
