"""What a traced step returns on CSX: values that exist only after the step has run."""

from __future__ import annotations

from typing import Any, NoReturn

import torch
from torch.utils import _pytree as pytree

from wsc.core.errors import WaferStreamError


class StepValue:
    """A scalar result of a step, before the step has run; step closures receive the tensor."""

    def __init__(self, position: int) -> None:
        self.position = position

    def _refuse(self, *_args: object) -> NoReturn:
        raise WaferStreamError(
            "a result of the traced step was read before the step has run",
            rule="on CSX tensors exist only after the step",
            remedy="pass it to a function decorated with @cstorch.step_closure",
        )

    item = cpu = numpy = tolist = detach = _refuse
    __float__ = __int__ = __bool__ = __format__ = __add__ = __mul__ = _refuse

    def __repr__(self) -> str:
        return f"<result {self.position} of the traced step, known after it has run>"


def resolve(arguments: Any, values: tuple[float, ...]) -> Any:
    """Replace every StepValue in a pytree by the fp32 scalar tensor it stands for."""

    def leaf(value: Any) -> Any:
        return torch.tensor(values[value.position]) if isinstance(value, StepValue) else value

    return pytree.tree_map(leaf, arguments)
