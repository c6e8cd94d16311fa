"""The values of every learning-rate and weight-decay schedule over 200 steps, as updates see them.

The gradient of step t is 1 for element t of the weight and 0 elsewhere, so plain SGD leaves the
learning rate of step t in element t. For weight decay the gradient is 0 and the rate is 1, so the
weight shrinks by the factor 1 - decay.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import cerebras.pytorch as cstorch
import torch
from harness import Results, main

STEPS = 200


class Element(torch.nn.Module):
    """A weight for every step, of which the batch chooses one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(STEPS))

    def forward(self, chosen: torch.Tensor) -> torch.Tensor:
        return -(self.weight * chosen).sum()


def batches(value: float) -> list[torch.Tensor]:
    """Return rows of a diagonal matrix, one per step."""
    return [value * row.view(1, -1) for row in torch.eye(STEPS)]


def run(make: Any, device: str, decay: bool = False) -> Results:
    """Return the values that a scheduler sets; ``make`` builds it from an optimizer."""
    backend = cstorch.backend(device)
    cstorch.amp.enable_mixed_precision(False)
    with backend.device:
        model = Element()
    initial = torch.full((STEPS,), 1.0 if decay else 0.0)
    model.load_state_dict({"weight": initial})
    compiled = cstorch.compile(model, backend)
    optimizer = cstorch.optim.SGD(model.parameters(), lr=1.0, weight_decay=0.0)
    scheduler = make(optimizer)
    family = "weight_decay" if decay else "lr"
    shown: list[float] = []

    @cstorch.trace
    def training_step(batch: Any) -> Any:
        loss = compiled(batch)
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        return loss

    @cstorch.step_closure
    def log(loss: Any) -> None:
        loss.item()
        shown.append(float(optimizer.param_groups[0][family]))

    loader = cstorch.utils.data.DataLoader(batches, 0.0 if decay else 1.0)
    num_steps = 20 if decay else STEPS
    for batch in cstorch.utils.data.DataExecutor(loader, num_steps=num_steps):
        log(training_step(batch))
    weights = model.state_dict()["weight"].to("cpu").detach()
    used = weights[:1] if decay else weights
    return {"used": used.numpy(), "shown": shown}


def lr(name: str, **arguments: Any) -> Any:
    """Return a function that builds the learning-rate scheduler of that name."""
    return lambda optimizer: getattr(cstorch.optim.lr_scheduler, name)(optimizer, **arguments)


def wd(name: str, **arguments: Any) -> Any:
    """Return a function that builds the weight-decay scheduler of that name."""
    module = cstorch.optim.weight_decay_scheduler
    return lambda optimizer: getattr(module, name)(optimizer, **arguments)


def sequential(optimizer: Any) -> Any:
    """Return a warm-up, a cosine and a constant."""
    parts = [
        lr("LinearLR", initial_learning_rate=0.0, end_learning_rate=0.1, total_iters=20),
        lr("CosineDecayLR", initial_learning_rate=0.1, end_learning_rate=0.01, total_iters=100),
        lr("ConstantLR", learning_rate=0.01, total_iters=50),
    ]
    schedulers = [part(optimizer) for part in parts]
    return cstorch.optim.lr_scheduler.SequentialLR(optimizer, schedulers, milestones=[20, 120])


def chained(optimizer: Any) -> Any:
    """Return an exponential decay times a staircase."""
    return cstorch.optim.lr_scheduler.ChainedScheduler(
        [
            lr("ExponentialLR", initial_learning_rate=0.1, total_iters=10, decay_rate=0.9)(
                optimizer
            ),
            lr("StepLR", initial_learning_rate=0.1, step_size=30, gamma=0.5)(optimizer),
        ]
    )


def scaled(optimizer: Any) -> Any:
    """Return a schedule times the factor of the parameter group."""
    optimizer.param_groups[0]["adjust_learning_rate"] = 0.5
    part = lr("LinearLR", initial_learning_rate=0.1, end_learning_rate=0.0, total_iters=100)
    return cstorch.optim.lr_scheduler.ScalePerParamLR(optimizer, part(optimizer))


FROM = {"initial_learning_rate": 0.1}
FALL = {**FROM, "end_learning_rate": 0.01}
CYCLE = {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 10}
CASES: dict[str, Any] = {
    "constant": lr("ConstantLR", learning_rate=0.1),
    "linear": lr("LinearLR", **FALL, total_iters=50),
    "linear-cycle": lr("LinearLR", **FALL, total_iters=50, cycle=True),
    "polynomial": lr("PolynomialLR", **FALL, total_iters=50, power=2.0),
    "polynomial-cycle": lr("PolynomialLR", **FALL, total_iters=50, power=2.0, cycle=True),
    "exponential": lr("ExponentialLR", **FROM, total_iters=20, decay_rate=0.8),
    "exponential-stairs": lr(
        "ExponentialLR", **FROM, total_iters=20, decay_rate=0.8, staircase=True
    ),
    "inverse-time": lr(
        "InverseExponentialTimeDecayLR", **FROM, step_exponent=2, total_iters=20, decay_rate=0.5
    ),
    "inverse-time-stairs": lr(
        "InverseExponentialTimeDecayLR",
        **FROM,
        step_exponent=1,
        total_iters=20,
        decay_rate=0.5,
        staircase=True,
    ),
    "inverse-root": lr("InverseSquareRootDecayLR", **FROM, scale=2.0, warmup_steps=10),
    "inverse-root-defaults": lr("InverseSquareRootDecayLR"),
    "cosine": lr("CosineDecayLR", **FALL, total_iters=120),
    "piecewise": lr("PiecewiseConstantLR", learning_rates=[0.1, 0.05, 0.2], milestones=[30, 90]),
    "multi-step": lr("MultiStepLR", **FROM, gamma=0.5, milestones=[30, 90]),
    "step": lr("StepLR", **FROM, step_size=30, gamma=0.5),
    "annealing": lr("CosineAnnealingLR", **FROM, T_max=60, eta_min=0.01),
    "restarts": lr("CosineAnnealingWarmRestarts", **FROM, T_0=40, eta_min=0.01),
    "restarts-longer": lr("CosineAnnealingWarmRestarts", **FROM, T_0=20, T_mult=2, eta_min=0.01),
    "multiplicative": lr("MultiplicativeLR", **FROM, coefficient=0.98),
    "cyclic": lr("CyclicLR", **CYCLE),
    "cyclic-uneven": lr("CyclicLR", **CYCLE, step_size_down=25),
    "cyclic-halving": lr("CyclicLR", **CYCLE, mode="triangular2"),
    "cyclic-range": lr("CyclicLR", **CYCLE, mode="exp_range", gamma=0.99),
    "cyclic-range-iterations": lr(
        "CyclicLR", **CYCLE, mode="exp_range", gamma=0.99, scale_mode="iterations"
    ),
    "one-cycle": lr("OneCycleLR", **FROM, max_lr=0.5, total_steps=240),
    "one-cycle-linear": lr(
        "OneCycleLR", **FROM, max_lr=0.5, total_steps=240, anneal_strategy="linear"
    ),
    "one-cycle-three-phases": lr(
        "OneCycleLR", **FROM, max_lr=0.5, total_steps=240, three_phase=True
    ),
    "sequential": sequential,
    "chained": chained,
    "scaled": scaled,
}
DECAYS: dict[str, Any] = {
    "constant-decay": wd("ConstantWD", val=0.1),
    "linear-decay": wd("LinearWD", initial_val=0.1, end_val=0.0, total_iters=10),
    "cosine-decay": wd("CosineDecayWD", initial_val=0.1, end_val=0.01, total_iters=15),
}

if __name__ == "__main__":
    rates = {name: partial(run, make) for name, make in CASES.items()}
    main({**rates, **{name: partial(run, make, decay=True) for name, make in DECAYS.items()}})
