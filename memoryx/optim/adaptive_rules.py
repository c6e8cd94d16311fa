"""Adadelta, Adagrad, RMSprop, Adamax, NAdam and RAdam, bit for bit torch's of the same names.

The reference is torch's implementation for one tensor at a time, its default on a CPU. Arguments
and defaults are the vendor's (cerebras_pytorch 2.10, ``optim``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from memoryx.optim.lazy_torch import torch
from memoryx.optim.rule import (
    AdamArguments,
    Betas,
    Decay,
    Hyper,
    LearningRate,
    NonNegative,
    Parameter,
    Rule,
    Shape,
    State,
    register,
)
from waferstream.core.config import Config

if TYPE_CHECKING:
    from torch import Tensor


@register
class Adadelta(Rule):
    """Steps in proportion to the root mean square of earlier steps.

    Zeiler 2012, arXiv:1212.5701, algorithm 1, multiplied by ``lr``.
    """

    flops_per_element = 18
    is_elementwise = True

    class Arguments(Config):
        """Hyper-parameters."""

        lr: LearningRate = 1.0
        rho: Decay = 0.9
        eps: NonNegative = 1e-6
        weight_decay: NonNegative = 0.0
        maximize: bool = False

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:  # noqa: ARG002
        return {"square_avg": shape, "acc_delta": shape}

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:  # noqa: ARG002
        rho, eps = hyper["rho"], hyper["eps"]
        for master, gradient, state in decayed(parameters, hyper):
            squares, changes = state["square_avg"], state["acc_delta"]
            squares.mul_(rho).addcmul_(gradient, gradient, value=1 - rho)
            root = squares.add(eps).sqrt_()
            change = changes.add(eps).sqrt_().div_(root).mul_(gradient)
            changes.mul_(rho).addcmul_(change, change, value=1 - rho)
            master.add_(change, alpha=-hyper["lr"])


@register
class Adagrad(Rule):
    """The gradient over the root of the sum of all its squares.

    Duchi et al. 2011, JMLR 12, section 1.3, diagonal form. The rate of step t is
    lr / (1 + (t - 1) lr_decay).
    """

    flops_per_element = 9
    is_elementwise = True

    class Arguments(Config):
        """Hyper-parameters."""

        lr: LearningRate = 1e-2
        lr_decay: NonNegative = 0.0
        weight_decay: NonNegative = 0.0
        initial_accumulator_value: NonNegative = 0.0
        eps: NonNegative = 1e-6
        maximize: bool = False

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:  # noqa: ARG002
        return {"sum": shape}

    def initial_value(self, state: str, hyper: Hyper) -> float:  # noqa: ARG002
        return float(hyper["initial_accumulator_value"])

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        rate = hyper["lr"] / (1 + (step - 1) * hyper["lr_decay"])
        for master, gradient, state in decayed(parameters, hyper):
            squares = state["sum"].addcmul_(gradient, gradient, value=1)
            master.addcdiv_(gradient, squares.sqrt().add_(hyper["eps"]), value=-rate)


@register
class RMSprop(Rule):
    """The gradient over the root of a running average of its squares, with momentum.

    Tieleman and Hinton 2012, Coursera lecture 6.5. ``centered`` subtracts the square of the
    average gradient (Graves 2013, arXiv:1308.0850, equations 38 to 45).
    """

    flops_per_element = 18
    is_elementwise = True

    class Arguments(Config):
        """Hyper-parameters."""

        lr: LearningRate = 1e-2
        alpha: Decay = 0.99
        eps: NonNegative = 1e-8
        weight_decay: NonNegative = 0.0
        momentum: NonNegative = 0.0
        centered: bool = False

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:
        names = ["square_avg"]
        names += ["momentum_buffer"] * bool(hyper["momentum"]) + ["grad_avg"] * hyper["centered"]
        return dict.fromkeys(names, shape)

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:  # noqa: ARG002
        lr, alpha, momentum = hyper["lr"], hyper["alpha"], hyper["momentum"]
        for master, gradient, state in decayed(parameters, hyper):
            second = state["square_avg"].mul_(alpha)
            second.addcmul_(gradient, gradient, value=1 - alpha)
            if hyper["centered"]:
                mean = state["grad_avg"].lerp_(gradient, 1 - alpha)
                second = second.addcmul(mean, mean, value=-1)
            root = second.sqrt().add_(hyper["eps"])
            if momentum:
                buffer = state["momentum_buffer"].mul_(momentum).addcdiv_(gradient, root)
                master.add_(buffer, alpha=-lr)
            else:
                master.addcdiv_(gradient, root, value=-lr)


@register
class Adamax(Rule):
    """Adam with the largest decayed gradient instead of the root of the second moment.

    Kingma and Ba 2015, arXiv:1412.6980, algorithm 2.
    """

    flops_per_element = 12
    is_elementwise = True

    class Arguments(AdamArguments):
        """Hyper-parameters."""

        maximize: bool = False

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:  # noqa: ARG002
        return {"exp_avg": shape, "exp_inf": shape}

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        beta1, beta2 = hyper["betas"]
        rate = hyper["lr"] / (1 - beta1**step)
        for master, gradient, state in decayed(parameters, hyper):
            first = state["exp_avg"].lerp_(gradient, 1 - beta1)
            largest = state["exp_inf"].mul_(beta2)
            torch.maximum(largest, gradient.abs().add_(hyper["eps"]), out=largest)
            master.addcdiv_(first, largest, value=-rate)


@register
class NAdam(Rule):
    """Adam with Nesterov momentum.

    Dozat 2016, "Incorporating Nesterov Momentum into Adam", algorithm 2, with the momentum
    beta1 (1 - 0.96^(t momentum_decay) / 2) at step t.
    """

    flops_per_element = 18
    is_elementwise = True
    derived_states = ("mu_product",)

    class Arguments(Config):
        """Hyper-parameters."""

        lr: LearningRate = 2e-3
        betas: Betas = (0.9, 0.999)
        eps: NonNegative = 1e-8
        weight_decay: NonNegative = 0.0
        momentum_decay: NonNegative = 4e-3

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:  # noqa: ARG002
        return {"exp_avg": shape, "exp_avg_sq": shape}

    def derived_value(self, state: str, hyper: Hyper, updates: int) -> float:  # noqa: ARG002
        return _nadam_momentum_product(hyper["betas"][0], hyper["momentum_decay"], updates)

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        lr, decay = hyper["lr"], hyper["momentum_decay"]
        beta1, beta2 = hyper["betas"]
        momentum = _nadam_momentum(beta1, decay, step)
        next_momentum = _nadam_momentum(beta1, decay, step + 1)
        product = _nadam_momentum_product(beta1, decay, step)
        for master, gradient, state in decayed(parameters, hyper):
            first, second = _moments(gradient, state, beta1, beta2)
            root = second.div(1 - beta2**step).sqrt().add_(hyper["eps"])
            master.addcdiv_(gradient, root, value=-lr * (1.0 - momentum) / (1.0 - product))
            master.addcdiv_(
                first, root, value=-lr * next_momentum / (1.0 - product * next_momentum)
            )


@register
class RAdam(Rule):
    """Adam with a rectified variance: momentum only until the second moment can be trusted.

    Liu et al. 2020, arXiv:1908.03265, algorithm 2; as in torch the rectification begins where the
    length of the moving average exceeds 5.
    """

    flops_per_element = 17
    is_elementwise = True

    Arguments = AdamArguments

    def state_shapes(self, shape: Shape, hyper: Hyper) -> dict[str, Shape]:  # noqa: ARG002
        return {"exp_avg": shape, "exp_avg_sq": shape}

    def update(self, parameters: Sequence[Parameter], hyper: Hyper, step: int) -> None:
        lr, (beta1, beta2) = hyper["lr"], hyper["betas"]
        correction = 1 - beta2**step
        longest = 2 / (1 - beta2) - 1
        length = longest - 2 * step * beta2**step / correction
        for master, gradient, state in decayed(parameters, hyper):
            first, second = _moments(gradient, state, beta1, beta2)
            change = first / (1 - beta1**step) * lr
            if length > 5.0:
                change *= correction**0.5 / second.sqrt().add_(hyper["eps"])
                change *= _rectification(length, longest)
            master.add_(change, alpha=-1.0)


def decayed(parameters: Sequence[Parameter], hyper: Hyper) -> Iterator[Parameter]:
    """Yield the parameters, gradients negated by ``maximize`` and with ``weight_decay`` added."""
    decay = hyper["weight_decay"]
    for master, gradient, state in parameters:
        ascent = -gradient if hyper.get("maximize") else gradient
        yield Parameter(master, ascent.add(master, alpha=decay) if decay else ascent, state)


def _moments(gradient: Tensor, state: State, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    """Update the first and second moment of Adam in place and return them."""
    first = state["exp_avg"].lerp_(gradient, 1 - beta1)
    second = state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    return first, second


def _nadam_momentum(beta1: float, decay: float, step: int) -> float:
    return float(beta1 * (1.0 - 0.5 * (0.96 ** (step * decay))))


@lru_cache(maxsize=64)
def _nadam_momentum_product(beta1: float, decay: float, step: int) -> float:
    """Return the product of the momenta of steps 1 to ``step``, rounded to fp32 after each.

    torch keeps it as a state of each parameter; it depends on the step only. Below the smallest
    fp32 number it stays zero, which bounds the loop.
    """
    product = np.float32(1.0)
    for earlier in range(1, step + 1):
        product *= np.float32(_nadam_momentum(beta1, decay, earlier))
        if product == 0.0:
            break
    return float(product)


def _rectification(length: float, longest: float) -> float:
    """Return the variance rectification r_t of algorithm 2."""
    ratio = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
    return float(ratio**0.5)
