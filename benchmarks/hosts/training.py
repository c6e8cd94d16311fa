"""A training over hosts in miniature, and what it takes: seconds, processor time, bytes sent."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from appliance.spec import RuntimeSpec
from benchmarks.hosts.driver import DONE, Order
from benchmarks.hosts.miniature import MiniatureHosts

_MODULE = "benchmarks.hosts.driver"


@dataclass(frozen=True)
class Model:
    """The GPT of a training and its micro-batches of one sample in a step."""

    hidden: int
    layers: int
    vocab: int
    sequence_length: int
    num_micro_batches: int

    def num_parameters(self) -> int:
        """Return the number of trained elements."""
        return Order(**vars(self), num_csx=1, runtime=RuntimeSpec()).workload.num_parameters()


@dataclass(frozen=True)
class Cost:
    """What a number of steps took: wall and processor seconds, bytes that each host has sent."""

    steps: int
    seconds: float
    cpu_seconds: float
    sent_bytes: list[int] = field(default_factory=list)


class Training:
    """A training with its program on host 0; the block ends it.

    Args:
        hosts: Where Ray runs.
        model: What is trained.
        num_csx: Systems.
        is_star: Whether roles are placed without regard to hosts.
        runtime: Section ``runtime`` of cluster.yaml.
    """

    def __init__(
        self,
        hosts: MiniatureHosts,
        model: Model,
        num_csx: int,
        *,
        is_star: bool = False,
        **runtime: Any,
    ) -> None:
        self._hosts = hosts
        order = {
            **vars(model),
            "num_csx": num_csx,
            "is_star": is_star,
            "runtime": {"address": "auto", "activation_memory": 4 << 30, **runtime},
        }
        self._command = [sys.executable, "-m", _MODULE, json.dumps(order)]

    def __enter__(self) -> Self:
        self._process = self._hosts.start(0, self._command)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def run(self, steps: int) -> Cost:
        """Train some steps and return what they took.

        Raises:
            RuntimeError: The program has ended; the error has its output.
        """
        assert self._process.stdin is not None, "it is a pipe"
        assert self._process.stdout is not None, "it is a pipe"
        sent, cpu_s = self._hosts.sent_bytes(), self._hosts.cpu_seconds()
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        output = []
        for line in self._process.stdout:
            if line.startswith(DONE):
                now = self._hosts.sent_bytes()
                return Cost(
                    steps,
                    float(line.split()[1]),
                    self._hosts.cpu_seconds() - cpu_s,
                    [after - before for after, before in zip(now, sent, strict=True)],
                )
            output.append(line)
        raise RuntimeError(f"the program has ended:\n{''.join(output)}")
