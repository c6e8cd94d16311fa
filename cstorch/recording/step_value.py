"""Results of a traced step as a user's program holds them: placeholders until the step has run."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch.utils import _pytree as pytree

from appliance.coordinator.step_results import StepResult
from waferstream.core.errors import ApplianceCompilationError, WaferStreamError
from waferstream.core.optimizer import LossScale
from waferstream.core.roles.role import Value


class Reader(Protocol):
    """The executor loop, as a result sees it that is read before the activation step."""

    def run_for_reading(self) -> None:
        """Run the steps that were called and have not run yet, if the loop still runs."""


class StepCall:
    """One call of a traced step in a loop: the values of its results, once the step has run."""

    def __init__(
        self,
        loop: Reader | None = None,
        values: tuple[Value, ...] | None = None,
        loss_scale: LossScale | None = None,
    ) -> None:
        self.values = values
        self.loss_scale = loss_scale
        """The loss scale after the step, if it is dynamic."""
        self._loop = loop

    @classmethod
    def of(cls, result: StepResult) -> StepCall:
        """Return a call that has run."""
        return cls(values=result.values, loss_scale=result.loss_scale)

    def note(self, result: StepResult) -> None:
        """Note the values of the step, which has run."""
        self.values, self.loss_scale = result.values, result.loss_scale

    def result(self, position: int) -> torch.Tensor:
        """Return a result; the steps up to this call are run first if they have not run yet.

        Raises:
            WaferStreamError: There is no value: nothing is executed, the loop was left before the
                step ran, or the result is a tensor of a step between two activation steps.
        """
        value = self._known()[position]
        if value is None:
            raise WaferStreamError(
                "a tensor that a traced step returned was not kept",
                code="tensor-result-not-kept",
                rule="tensors come back at activation steps; scalars at every step",
                remedy="lower activation_steps of the DataExecutor, or read it in its iteration",
            )
        return torch.tensor(value) if isinstance(value, float) else value

    def of_loss_scale(self, name: str) -> torch.Tensor:
        """Return a number of the loss scale after the step, by its name in LossScale."""
        self._known()
        return torch.tensor(getattr(self.loss_scale, name))

    def _known(self) -> tuple[Value, ...]:
        """Return the values of the step, which runs now if it has not run yet."""
        if self.values is None and self._loop is not None:
            self._loop.run_for_reading()
        if self.values is None:
            raise WaferStreamError(
                "a result of a traced step was read that never gets a value",
                code="step-value-without-run",
                rule="the step runs in its loop, and neither with compile_only nor validate_only",
                remedy="read it inside the loop, or in a @cstorch.step_closure",
            )
        return self.values


class StepValue:
    """A result of a step, which stands for its tensor; step closures receive the tensor itself.

    Whatever is done with it elsewhere (``item()``, arithmetic, torch functions) reads the tensor,
    for which the steps up to its call must run at once.
    """

    position = -1
    """Place among the results of the step; -1 if it is none of them."""

    def __init__(self, position: int, call: StepCall | None = None) -> None:
        self.position = position
        self._call = call

    def of(self, call: StepCall) -> StepValue:
        """Return the same result of one call."""
        return StepValue(self.position, call)

    def tensor(self, call: StepCall | None = None) -> torch.Tensor:
        """Return the tensor; ``call`` is the call to read if the value belongs to none."""
        source = self._call or call
        assert source is not None, "results inside a trace are tensors"
        return source.result(self.position)

    def detach(self) -> StepValue:
        """Return the value itself, which has no gradient."""
        return self

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # protocols of copy, pickle and the like, which read nothing
            raise AttributeError(name)
        return getattr(self.tensor(), name)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        args, kwargs = resolve((args, kwargs or {}))
        return func(*args, **kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tensor().__array__(*args, **kwargs)

    def __repr__(self) -> str:
        if self._call is None or self._call.values is None:
            return f"<result {self.position} of the traced step, known after it has run>"
        return repr(self.tensor())

    def __str__(self) -> str:
        return str(self.tensor())

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        return copy.deepcopy(self.tensor(), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.tensor().__reduce_ex__(protocol)

    __hash__ = object.__hash__


class LossScaleValue(StepValue):
    """A number of the loss scale after a step, plus ``before``; ``name`` as in LossScale."""

    def __init__(self, name: str, call: StepCall | None = None, before: int = 0) -> None:
        self.name = name
        self._before = before
        self._call = call

    def of(self, call: StepCall) -> LossScaleValue:
        return LossScaleValue(self.name, call, self._before)

    def tensor(self, call: StepCall | None = None) -> torch.Tensor:
        source = self._call or call
        assert source is not None, "inside a trace the scale of its end is not known"
        value = source.of_loss_scale(self.name)
        return value + self._before if self._before else value

    def __repr__(self) -> str:
        if self._call is None or self._call.values is None:
            return f"<{self.name} of the loss scale, known after the traced step has run>"
        return repr(self.tensor())


class HyperValue(StepValue):
    """A hyper-parameter of an optimizer in a trace; step closures receive that of their step."""

    def __init__(self, read: Callable[[], float]) -> None:
        self._read = read

    def tensor(self, call: StepCall | None = None) -> torch.Tensor:
        if call is None:
            raise ApplianceCompilationError(
                "a hyper-parameter of the optimizer was read inside a traced step",
                code="hyper-parameter-in-trace",
                rule="the step is recorded once; MemoryX evaluates schedules at every step",
                remedy="pass it to a @cstorch.step_closure, which receives the value of each step",
            )
        return torch.tensor(self._read())

    def of(self, call: StepCall) -> StepValue:  # noqa: ARG002
        return self

    def __repr__(self) -> str:
        return "<hyper-parameter of the traced step, known after it has run>"


class LeftTensor(StepValue):
    """A tensor that a trace has left in state of Python: in an attribute, or a list of a hook.

    It has a shape, with 0 for samples that were a symbol, and can be copied and saved with its
    model.
    """

    _ALLOWED = frozenset({"shape", "dtype", "device", "ndim", "dim", "size", "numel"})
    _traced: torch.Tensor

    def __init__(self, traced: torch.Tensor) -> None:
        shape = [extent if isinstance(extent, int) else 0 for extent in traced.shape]
        self._traced = torch.empty(shape, dtype=traced.dtype, device="meta")

    def of(self, call: StepCall) -> StepValue:  # noqa: ARG002
        return self

    def tensor(self, call: StepCall | None = None) -> torch.Tensor:  # noqa: ARG002
        raise ApplianceCompilationError(
            "a tensor of a traced step is read outside of the step",
            code="tensor-left-by-trace",
            value=f"shape {tuple(self._traced.shape)}, {self._traced.dtype}",
            rule="the step is recorded: its tensors have values on the wafer only",
            remedy="return it from the step, where a @cstorch.step_closure receives the value; or"
            " measure it with a call of the model outside of the step",
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # protocols of copy, pickle and the like, which read nothing
            raise AttributeError(name)
        return getattr(self._traced if name in self._ALLOWED else self.tensor(), name)

    def __deepcopy__(self, memo: dict[int, Any]) -> LeftTensor:  # type: ignore[override]
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return LeftTensor, (self._traced,)

    def __repr__(self) -> str:
        return "<tensor of the traced step, which has no value here: return it from the step>"


_OPERATORS = (
    "float int bool index complex format len getitem iter contains neg pos abs invert round"
    " eq ne lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod pow rpow"
    " matmul rmatmul and or xor"
)


def _reading(name: str) -> Callable[..., Any]:
    """Return a special method that calls that of the tensor."""

    def method(value: StepValue, *args: Any) -> Any:
        return getattr(value.tensor(), name)(*resolve(args))

    return method


for _name in _OPERATORS.split():
    setattr(StepValue, f"__{_name}__", _reading(f"__{_name}__"))


def resolve(
    arguments: Any,
    call: StepCall | None = None,
    note: Callable[[torch.Tensor, str], None] = lambda _tensor, _name: None,
) -> Any:
    """Replace every StepValue in a pytree by its tensor.

    Args:
        arguments: The pytree.
        call: The call whose values are those that belong to no call.
        note: Called with each tensor and its name.
    """

    def tensor_of(value: StepValue) -> torch.Tensor:
        tensor = value.tensor(call)
        note(tensor, f"result_{value.position}")
        return tensor

    return pytree.tree_map_only(StepValue, tensor_of, arguments)
