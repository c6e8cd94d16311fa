"""Optimizers: parameter groups, ranges of hyper-parameters, recording in a trace, spec."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from cstorch import optim
from cstorch.optim.lr_scheduler import ConstantLR, LinearLR
from cstorch.optim.weight_decay_scheduler import ConstantWD
from cstorch.recording.recorder import active_recorder, recording
from memoryx.optim.rule import RULES, Parameter, rule_named
from tests.support.errors import raises
from tests.support.plain_torch.optimizer_rules import init_state
from waferstream.core.errors import ApplianceCompilationError, ConfigError, WaferStreamError

CLASSES = [
    *(optim.SGD, optim.Adam, optim.AdamW, optim.Adamax, optim.NAdam, optim.RAdam),
    *(optim.Adadelta, optim.Adagrad, optim.RMSprop, optim.ASGD, optim.Rprop),
    *(optim.Lion, optim.Adafactor, optim.Lamb, optim.Muon),
]


@pytest.fixture
def weights() -> list[nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(size)) for size in (2, 3)]


@pytest.fixture
def names(weights: list[nn.Parameter]) -> dict[torch.Tensor, str]:
    return {weights[0]: "first.weight", weights[1]: "second.weight"}


@pytest.mark.parametrize("kind", CLASSES)
def test_spec_of_every_optimizer_runs_in_memoryx(
    kind: Any, weights: list[nn.Parameter], names: dict[torch.Tensor, str]
) -> None:
    """Every optimizer has a rule of its name, which finds all the numbers it needs in the spec."""
    spec = kind(weights, lr=0.1).spec(names)
    (group,) = spec.groups
    assert group.names == ("first.weight", "second.weight")
    assert set(group.hyper) == set(inspect.signature(kind).parameters) - {"params"}
    rule, hyper = rule_named(spec.rule), group.at(1)
    master = torch.zeros(2)
    rule.update([Parameter(master, torch.ones(2), init_state(rule, (2,), hyper))], hyper, 1)
    assert (master < 0).all()


@pytest.mark.parametrize(
    ("kind", "defaults"),
    [
        (optim.Adadelta, {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "maximize": False}),
        (optim.Adagrad, {"lr": 1e-2, "lr_decay": 0, "initial_accumulator_value": 0, "eps": 1e-6}),
        (optim.Adamax, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "maximize": False}),
        (optim.ASGD, {"lr": 1e-2, "lambd": 1e-4, "alpha": 0.75, "t0": 1e6, "maximize": False}),
        (optim.Muon, {"lr": 0.02, "weight_decay": 0.01, "momentum": 0.95, "ns_steps": 5}),
        (optim.NAdam, {"lr": 2e-3, "betas": (0.9, 0.999), "momentum_decay": 4e-3}),
        (optim.RAdam, {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0}),
        (optim.RMSprop, {"lr": 1e-2, "alpha": 0.99, "momentum": 0, "centered": False}),
        (optim.Rprop, {"lr": 1e-3, "etas": (0.5, 1.2), "step_sizes": (1e-6, 50.0)}),
    ],
)
def test_default_hyper_parameters_are_the_vendors(
    kind: Any, defaults: Any, weights: list[nn.Parameter]
) -> None:
    """Those of cerebras_pytorch 2.10, ``optim``."""
    assert kind(weights).defaults.items() >= defaults.items()


def test_every_rule_has_an_optimizer() -> None:
    """The public classes are those of the rules, with their name, module and documentation."""
    assert {kind.__name__ for kind in CLASSES} == set(RULES)
    for kind in CLASSES:
        assert getattr(optim, kind.__name__) is kind
        assert kind.__module__ == "cstorch.optim"
        assert kind.__doc__ == type(kind.rule).__doc__


def test_groups_override_single_hyper_parameters(
    weights: list[nn.Parameter], names: dict[torch.Tensor, str]
) -> None:
    """A group's own values win over the defaults; tags and names are no hyper-parameters."""
    groups: list[dict[str, Any]] = [
        {"params": [weights[0]], "weight_decay": 0.1, "tags": "decay"},
        {"params": [weights[1]], "betas": [0.8, 0.9], "name": "norms"},
    ]
    optimizer = optim.AdamW(groups, lr=1e-2)
    first, second = optimizer.spec(names).groups
    assert (first.hyper["weight_decay"], first.hyper["lr"]) == (0.1, 1e-2)
    assert (second.hyper["weight_decay"], second.hyper["betas"]) == (0.0, (0.8, 0.9))


@pytest.mark.parametrize(
    ("kind", "args", "key"),
    [
        (optim.AdamW, {"lr": -1.0}, "'lr'"),
        (optim.AdamW, {"lr": float("nan")}, "'lr'"),
        (optim.AdamW, {"lr": "fast"}, "'lr'"),
        (optim.AdamW, {"betas": (0.9, 1.0)}, "'betas[1]'"),
        (optim.AdamW, {"eps": (1e-6, 1e-6)}, "'eps'"),
        (optim.Adam, {"weight_decay": -0.1}, "'weight_decay'"),
        (optim.SGD, {"momentum": -0.1}, "'momentum'"),
        (optim.Adafactor, {"eps": 1e-3}, "'eps'"),
    ],
)
def test_hyper_parameters_out_of_range_are_refused(
    kind: Any, args: Any, key: Any, weights: list[nn.Parameter]
) -> None:
    """The error names the hyper-parameter, the optimizer and the group."""
    with pytest.raises(ConfigError) as caught:
        kind(weights, **args)
    assert key in caught.value.what
    assert caught.value.where == f"{kind.__name__}, parameter group 0"


@pytest.mark.parametrize(
    ("kind", "args", "code"),
    [
        (optim.SGD, {"nesterov": True}, "nesterov-without-momentum"),
        (optim.Adafactor, {"warmup_init": True}, "warmup-without-relative-step"),
        (optim.Adafactor, {"lr": 0.1, "relative_step": True}, "lr-with-relative-step"),
    ],
)
def test_hyper_parameters_that_contradict_are_refused(
    kind: Any, args: Any, code: Any, weights: list[nn.Parameter]
) -> None:
    """Each alone would be allowed."""
    with raises(ConfigError, code) as caught:
        kind(weights, **args)
    assert caught.value.where == f"{kind.__name__}, parameter group 0"


def test_misspelt_key_of_a_group_is_refused(weights: list[nn.Parameter]) -> None:
    """A group key that is no hyper-parameter would be ignored silently; it is an error instead."""
    with pytest.raises(ConfigError) as caught:
        optim.AdamW([{"params": weights, "weight_decy": 0.1}])
    assert "'weight_decay'" in str(caught.value.remedy)


def test_step_outside_a_trace_is_refused(weights: list[nn.Parameter]) -> None:
    """The error says where the optimizer runs and what to do."""
    with raises(WaferStreamError, "optimizer-outside-trace") as caught:
        optim.SGD(weights, lr=0.1).step()
    assert "cstorch.trace" in str(caught.value.remedy)


def test_recorder_spec_is_the_whole_update(
    weights: list[nn.Parameter], names: dict[torch.Tensor, str]
) -> None:
    """Clipping, optimizer and schedulers of a trace end up in the spec; nothing is computed."""
    optimizer = optim.AdamW(weights)
    rate = LinearLR(optimizer, initial_learning_rate=0.0, end_learning_rate=1.0, total_iters=10)
    decay = ConstantWD(optimizer, val=0.5)
    weights[0].grad = torch.ones(2)
    with recording() as recorder:
        recorder.clip_value(0.5)
        recorder.clip_norm(1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
        decay.step()
    spec = recorder.spec(names)
    assert spec is not None
    assert (spec.rule, spec.max_gradient_norm, spec.max_gradient_value) == ("AdamW", 1.0, 0.5)
    assert spec.groups[0].at(4)["lr"] == pytest.approx(0.3)
    assert spec.groups[0].at(4)["weight_decay"] == 0.5
    assert weights[0].grad is not None
    assert active_recorder.get() is None
    optimizer.zero_grad()
    assert weights[0].grad is None


def test_recorder_without_an_optimizer_has_no_spec(names: dict[torch.Tensor, str]) -> None:
    """An evaluation step records nothing."""
    with recording() as recorder:
        pass
    assert recorder.spec(names) is None


def test_recorder_refuses_another_order_of_the_update(weights: list[nn.Parameter]) -> None:
    """Two steps, clipping after the step or twice, a scheduler twice: each is an error."""
    optimizer = optim.SGD(weights, lr=0.1)
    scheduler = ConstantLR(optimizer, learning_rate=0.1)
    with recording() as recorder:
        recorder.clip_norm(1.0)
        with raises(ApplianceCompilationError, "clipped-twice"):
            recorder.clip_norm(1.0)
        with raises(ApplianceCompilationError, "clipped-by-norm-first"):
            recorder.clip_value(1.0)
        optimizer.step()
        with raises(ApplianceCompilationError, "clipped-after-step"):
            recorder.clip_value(1.0)
        with raises(ApplianceCompilationError, "optimizer-stepped-twice"):
            optimizer.step()
        scheduler.step()
        with raises(ApplianceCompilationError, "scheduler-stepped-twice"):
            scheduler.step()
    closure: Any = float
    with raises(WaferStreamError, "step-with-closure"):
        optimizer.step(closure=closure)


def test_step_and_zero_grad_leave_no_op_in_the_graph(weights: list[nn.Parameter]) -> None:
    """make_fx sees neither the optimizer nor the profiler ranges that torch puts around it."""
    optimizer = optim.SGD(weights, lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = x.sum()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    with FakeTensorMode():
        example = torch.empty(3)
    with recording():
        graph = make_fx(step, _allow_non_fake_inputs=True)(example).graph
    assert [node.op for node in graph.nodes] == ["placeholder", "call_function", "output"]


def test_group_without_a_learning_rate_is_refused(
    weights: list[nn.Parameter], names: dict[torch.Tensor, str]
) -> None:
    """SGD without lr is fine with a scheduler and an error without; Adafactor may find its own."""
    optimizer = optim.SGD(weights)
    with raises(ConfigError, "no-learning-rate"):
        optimizer.spec(names)
    assert optimizer.spec(names, [ConstantLR(optimizer, learning_rate=0.2)]).groups[0].at(1)[
        "lr"
    ] == pytest.approx(0.2)
    own = optim.Adafactor(weights, relative_step=True)
    assert own.spec(names).groups[0].hyper["lr"] is None
    scheduler = ConstantLR(own, learning_rate=0.2)
    with raises(ConfigError, "lr-with-relative-step"):
        own.spec(names, [scheduler])


def test_parameter_of_another_model_is_refused(
    weights: list[nn.Parameter], names: dict[torch.Tensor, str]
) -> None:
    """Every parameter needs a name in the compiled model."""
    optimizer = optim.SGD([*weights, torch.nn.Parameter(torch.zeros(5))], lr=0.1)
    with raises(WaferStreamError, "parameter-not-in-model"):
        optimizer.spec(names)


def test_state_dict_keeps_the_groups(weights: list[nn.Parameter]) -> None:
    """Hyper-parameters survive a round trip."""
    optimizer = optim.AdamW(weights, lr=0.5, betas=(0.8, 0.9))
    optimizer.preinitialize()
    saved = optimizer.state_dict()
    other = optim.AdamW(weights)
    other.load_state_dict(saved)
    assert (other.param_groups[0]["lr"], other.param_groups[0]["betas"]) == (0.5, (0.8, 0.9))


def test_signature_of_an_optimizer_is_the_vendors(weights: list[nn.Parameter]) -> None:
    """Names, order and defaults; arguments may be given by position, unknown ones are refused."""
    parameters = inspect.signature(optim.Lion).parameters
    assert list(parameters) == ["params", "lr", "betas", "weight_decay"]
    assert [p.default for p in parameters.values()][1:] == [1e-4, (0.9, 0.99), 0.0]
    assert optim.Lion(weights, 0.1, (0.8, 0.9)).defaults["betas"] == (0.8, 0.9)
    with pytest.raises(TypeError, match="momentum"):
        optim.Lion(weights, momentum=0.1)
