"""Functions of which a server has forms of its own, as attention over a cache.

Such a function is ordinary PyTorch, and to all modes of torch it is what it calls. A mode of class
``FormMode`` sees the function itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import torch
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    handle_torch_function,
)

Function = Callable[..., torch.Tensor]


class FormMode(TorchFunctionMode):
    """A mode that computes some functions in forms of its own."""

    forms: Mapping[str, Function]
    """By the ``__name__`` of the function that ``__torch_function__`` is given."""


def has_forms(function: Function) -> Function:
    """Let modes of class ``FormMode`` compute a function of tensors."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> torch.Tensor:
        modes = _get_current_function_mode_stack()
        if any(isinstance(mode, FormMode) and function.__name__ in mode.forms for mode in modes):
            found: torch.Tensor = handle_torch_function(call, args, *args, **kwargs)
            return found
        return function(*args, **kwargs)

    return call
