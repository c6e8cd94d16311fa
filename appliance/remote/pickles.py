"""Commands and results as bytes: commands may carry code, results are data and carry none.

A command holds kernels and the user's input function, which is pickled by value where the cluster
cannot import it: functions of the program itself, and modules in its folder. Tensors and arrays are
buffers beside the pickle, which are neither copied nor joined.
"""

from __future__ import annotations

import io
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np
import torch

from appliance.coordinator.step_results import StepResult
from appliance.remote.wire import Buffer
from waferstream.core.errors import ApplianceCorruptionError, ConfigError
from waferstream.core.events import (
    ClusterReplaced,
    Duration,
    Recovered,
    RecoveryDecided,
    SystemsReturned,
)
from waferstream.core.messages.watch import TensorNorms
from waferstream.core.optimizer import LossScale
from waferstream.core.roles.activities import Interval, Place
from waferstream.machine.attribution import Attribution, StepTiming
from waferstream.machine.record import Occupancy, Record, SegmentFacts, SramUse
from waferstream.machine.trace import Activities
from waferstream.numerics.precision import DTYPES, NAMES

_OWN = ("appliance", "csnode", "cstorch", "memoryx", "modelzoo", "swarmx", "waferstream",
        "waferstream_compat")  # fmt: skip
_LEAST_BUFFER_BYTES = 4096


def pickled(value: object) -> list[Buffer]:
    """Return the pickle of a value, and the buffers beside it.

    Raises:
        ConfigError: Something that the value refers to cannot leave this process.
    """
    file, buffers = io.BytesIO(), list[pickle.PickleBuffer]()

    def keep_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < _LEAST_BUFFER_BYTES:
            return True
        buffers.append(buffer)
        return False

    try:
        with _program_by_value():
            _Pickler(file, protocol=5, buffer_callback=keep_in_pickle).dump(value)
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(
            "what the cluster needs of the program must be able to travel there",
            code="input-not-portable",
            where="the input function of the DataLoader",
            value=error,
            rule="open files, locks, generators and connections stay in their process",
            remedy="open them inside the input function, which runs at the input workers",
        ) from error
    return [file.getbuffer(), *(buffer.raw() for buffer in buffers)]


def command_from(buffers: Sequence[Buffer]) -> Any:
    """Return what ``pickled`` was given. It may run code: for what an authentic user has sent.

    Raises:
        ConfigError: It needs something that is not here.
    """
    try:
        return pickle.loads(buffers[0], buffers=buffers[1:])  # noqa: S301  (commands are code)
    except Exception as error:  # of any code that is imported
        raise ConfigError(
            "the cluster must be able to load what the program sends",
            code="command-not-loadable",
            where="the input function of the DataLoader",
            value=repr(error),
            rule="modules beside the program travel with it, installed packages do not",
            remedy="install the package where the cluster runs",
        ) from error


def result_from(buffers: Sequence[Buffer]) -> Any:
    """Return a result, which consists of known classes alone and runs no code of its sender.

    Raises:
        ApplianceCorruptionError: It is something else.
    """
    try:
        return _Results(io.BytesIO(buffers[0]), buffers=buffers[1:]).load()
    except (pickle.UnpicklingError, TypeError, ValueError, AttributeError, EOFError) as error:
        raise ApplianceCorruptionError(
            "a result must consist of known data", code="result-unknown", value=error
        ) from error


def _tensor(content: Buffer, dtype: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor whose memory is a buffer."""
    if not len(content):
        return torch.empty(shape, dtype=DTYPES[dtype])
    return torch.frombuffer(_writable(content), dtype=torch.uint8).view(DTYPES[dtype]).view(shape)


def _array(content: Buffer, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array whose memory is a buffer."""
    return np.frombuffer(_writable(content), dtype).reshape(shape)


def _writable(content: Buffer) -> Buffer:
    return bytearray(content) if isinstance(content, bytes) else content


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """A pickler of functions by value, and of tensors and arrays as buffers."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and _is_plain(value):
            flat = value.contiguous().reshape(-1).view(torch.uint8).numpy().data
            return _tensor, (pickle.PickleBuffer(flat), NAMES[value.dtype], tuple(value.shape))
        if type(value) is np.ndarray and value.dtype.kind in "biufc" and value.dtype.isnative:
            flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
            return _array, (pickle.PickleBuffer(flat), value.dtype.str, value.shape)
        return super().reducer_override(value)


def _is_plain(value: torch.Tensor) -> bool:
    """Return whether a tensor is nothing but numbers in the memory of the processor."""
    is_dense = value.layout is torch.strided and value.device.type == "cpu"
    return is_dense and not value.requires_grad and value.dtype in NAMES


_RESULTS: dict[tuple[str, str], Callable[..., object]] = {
    (kind.__module__, kind.__qualname__): kind
    for kind in (
        Activities, Attribution, ClusterReplaced, Duration, Interval, LossScale, Occupancy, Place,
        Record, Recovered, RecoveryDecided, SegmentFacts, SramUse, StepResult, StepTiming,
        SystemsReturned, TensorNorms, _array, _tensor, frozenset, set,
    )
}  # fmt: skip


class _Results(pickle.Unpickler):
    """An unpickler as the documentation of pickle describes it under "Restricting Globals"."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _RESULTS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is in no result") from None


@contextmanager
def _program_by_value() -> Iterator[None]:
    """Pickle by value, in the block, what is imported from the program's folder."""
    folder = os.path.abspath(sys.path[0] or ".") + os.sep
    modules = [each for each in list(sys.modules.values()) if _is_in(each, folder)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _is_in(module: ModuleType, folder: str) -> bool:
    """Return whether a module is the program's: in its folder, and in no installed package."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.startswith(folder) or "site-packages" in file:
        return False
    return module.__name__.partition(".")[0] not in {"__main__", *_OWN}
