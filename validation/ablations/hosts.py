"""Ablations of hosts: sizes that a compiler tries, tensors, starts, releases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from validation.ablations.ablation import Ablation
from validation.families.start_up import compiled, hosts_of, saved_bytes, sent
from validation.families.training import machine_of
from validation.rows.row import Row
from validation.rows.units import SECONDS
from waferstream.core.units import seconds
from waferstream.machine.hardware import HostSpec
from waferstream.machine.start_up import checkpoint_ps, compile_ps, initial_weights_ps

_Hosts = Callable[[Row], HostSpec]


def _with(**changed: Any) -> _Hosts:
    return lambda row: hosts_of(row).model_copy(update=changed)


def _sent(hosts: _Hosts) -> Callable[[Row], float]:
    """Return the prediction of initial weights on other hosts."""
    return lambda row: _in_unit(row, initial_weights_ps(hosts(row), *sent(row)))


def _compiled_once(row: Row) -> float:
    asked = compiled(row)
    return _in_unit(row, compile_ps(hosts_of(row), asked.sizes[:1], asked.elements))


def _compiled_alike(row: Row) -> float:
    return _in_unit(row, compile_ps(hosts_of(row), compiled(row).sizes, 0))


def _saved_at_once(row: Row) -> float:
    return _in_unit(row, checkpoint_ps(_with(save_start_ps=0)(row), saved_bytes(row)))


def _in_unit(row: Row, duration_ps: int) -> float:
    return seconds(duration_ps) / SECONDS[row.unit]


ABLATIONS: tuple[Ablation, ...] = (
    Ablation(
        "micro-batch sizes that the compiler tries",
        "it tries one",
        "start-up compile",
        _compiled_once,
    ),
    Ablation(
        "width of a layer in compiling",
        "sizes take the same time",
        "start-up compile",
        _compiled_alike,
    ),
    Ablation(
        "time of a tensor",
        "weights are bytes alone",
        "start-up initial weights",
        _sent(_with(tensor_ps=0)),
    ),
    Ablation(
        "slower releases before 2.2",
        "all releases send alike",
        "start-up initial weights",
        _sent(lambda row: machine_of(row).system.hosts),
    ),
    Ablation(
        "start of a checkpoint",
        "its first byte is written at once",
        "start-up checkpoint",
        _saved_at_once,
    ),
)
