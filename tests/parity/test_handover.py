"""A plain PyTorch loop that hands its steps over: losses and weights of the loop without it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import cstorch
from cstorch.handover.batches import HandedBatches
from tests.support.models.transformers_cases import CASES, SPEECH, VISION_LANGUAGE
from tests.support.programs.ended import ended_backend

LOCAL: Any = {"runtime": {"kind": "local"}}


@pytest.fixture(autouse=True)
def _ended() -> Iterator[None]:
    with ended_backend():
        yield


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batches() -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    shape = (6, 8)
    inputs = torch.randn(*shape, 8, generator=generator)
    return list(zip(inputs, torch.randint(0, 4, shape, generator=generator), strict=True))


def train(hands_over: bool, *, clip: Any = None, autocast: bool = False) -> list[Any]:
    """Run a loop with a schedule; return what it has read, and the weights."""
    net, read = model(), []
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 6)
    total = torch.zeros(())
    handover = cstorch.hand_over(net, optimizer, num_csx=2, cluster=LOCAL) if hands_over else None
    for inputs, targets in batches():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            output = net(inputs)
            loss = functional.cross_entropy(output, targets)
        accuracy = (output.argmax(dim=-1) == targets).float().mean()
        optimizer.zero_grad()
        loss.backward()
        total += loss.detach()
        if clip is not None:
            clip(net.parameters(), 0.3)
        optimizer.step()
        schedule.step()
        read += [loss.item(), float(accuracy), total.item(), output.shape, output[0, 0].item()]
    if handover is not None:
        handover.end()
    return [*read, *(parameter.detach() for parameter in net.parameters())]


def assert_close(values: list[Any], plain: list[Any], tolerance: float) -> None:
    for value, expected in zip(values, plain, strict=True):
        tensors = (torch.as_tensor(value), torch.as_tensor(expected))
        torch.testing.assert_close(*tensors, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "clip",
    [None, nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_],
    ids=["unclipped", "norm", "value"],
)
def test_a_loop_has_the_values_of_plain_pytorch(clip: Any) -> None:
    assert_close(train(True, clip=clip), train(False, clip=clip), 1e-5)


def test_autocast_of_the_loop_takes_part() -> None:
    assert_close(train(True, autocast=True), train(False, autocast=True), 1e-2)


def of_half(loss: torch.Tensor, _: torch.Tensor) -> None:
    loss.backward(torch.tensor(0.5))


def of_each_sample(_: torch.Tensor, output: torch.Tensor) -> None:
    (output.logsumexp(dim=1)).backward(gradient=torch.linspace(0, 1, len(output)))


def of_two(loss: torch.Tensor, output: torch.Tensor) -> None:
    torch.autograd.backward([loss, output.square().mean()], [None, torch.tensor(0.1)])


@pytest.mark.parametrize("begin", [of_half, of_each_sample, of_two])
def test_a_backward_pass_begins_where_the_loop_says(begin: Any) -> None:
    def weights(hands_over: bool) -> list[Any]:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        handover = cstorch.hand_over(net, optimizer, cluster=LOCAL) if hands_over else None
        for inputs, targets in batches()[:2]:
            optimizer.zero_grad()
            output = net(inputs)
            begin(functional.cross_entropy(output, targets), output)
            optimizer.step()
        if handover is not None:
            handover.end()
        return [parameter.detach() for parameter in net.parameters()]

    assert_close(weights(True), weights(False), 1e-5)


def test_a_step_may_be_left_out_after_its_backward_pass() -> None:
    def weights(hands_over: bool) -> list[Any]:
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
        handover = cstorch.hand_over(net, optimizer, cluster=LOCAL) if hands_over else None
        for index, (inputs, targets) in enumerate(batches()[:3]):
            optimizer.zero_grad()
            functional.cross_entropy(net(inputs), targets).backward()
            if index != 1:
                optimizer.step()
        if handover is not None:
            handover.end()
        return [parameter.detach() for parameter in net.parameters()]

    assert_close(weights(True), weights(False), 1e-5)


def test_the_model_is_evaluated_with_the_newest_weights() -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    handover = cstorch.hand_over(net, optimizer, cluster=LOCAL)
    (inputs, targets), *_ = batches()
    functional.cross_entropy(net(inputs), targets).backward()
    optimizer.step()
    with torch.no_grad():
        during = net(inputs)
    handover.end()
    assert torch.equal(net(inputs), during)


def test_input_workers_elsewhere_ask_for_the_batch() -> None:
    handed = HandedBatches()
    make, arguments = handed.__reduce__()
    asked = make(*arguments)
    for handed.newest in batches():
        for given, got in zip(handed.newest, asked().batch(0), strict=True):
            assert torch.equal(given, got)
    handed.close()


DROPOUTS = ("hidden", "attention", "activation", "feat_proj", "final")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["qwen3-moe", "wav2vec2-ctc", "llava"])
def test_model_of_transformers_is_handed_over(name: str) -> None:
    """With products of groups of rows, labels that a mask selects, and checks of values."""
    (case,) = (each for each in (*CASES, *SPEECH, *VISION_LANGUAGE) if each.name == name)
    none = {f"{part}_dropout": 0.0 for part in DROPOUTS} if name.startswith("wav2vec2") else {}
    case = replace(case, sizes={**case.sizes, **none})

    def losses(hands_over: bool) -> list[float]:
        net, read = case.model(), []
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        if hands_over:
            cstorch.hand_over(net, optimizer, num_csx=2, cluster=LOCAL)
        for batch in case.batches(3):
            loss = net(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            read.append(loss.item())
        return read

    assert losses(True) == pytest.approx(losses(False), rel=1e-5)
