"""Faults as a user states them, and a record of those that have happened.

csx-1@51:kill               the first message of step 51 that csx-1 takes is its last
br-0@20/gradients:drop      the first answer to a gradient of step 20 is lost
wrk-0@3:slow=0.5*4          four messages, from step 3 on, take half a second longer

They stand in cluster.yaml, behind ``--fault``, in tests, or are drawn at random.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from waferstream.core.config import Config
from waferstream.core.errors import ConfigError
from waferstream.core.roles.names import COORDINATOR, node_name, server_name

Moment = Literal["any", "weights", "gradients", "inputs", "activations", "norms"]
"""The protocol whose message triggers a fault."""

Kind = Literal[
    "kill",
    "segfault",
    "exception",
    "hang",
    "stop",
    "slow",
    "partition",
    "drop",
    "duplicate",
    "corrupt",
    "delay",
    "disk",
    "memory",
    "clock",
    "wrong_bits",
]
"""What happens:

    kill        the process ends by SIGKILL
    segfault    it ends by SIGSEGV
    exception   the role raises an exception of its own
    hang        it never returns from a message
    stop        SIGSTOP stops its process
    slow        the message takes longer
    partition   nothing enters or leaves the role for a while
    drop        its next message is lost
    duplicate   its next message arrives twice
    corrupt     its next message arrives damaged
    delay       its next message arrives late
    disk        the disk is full while it writes its next checkpoint
    memory      it runs out of memory
    clock       its clock jumps
    wrong_bits  it flips a bit of the next gradient that it computes
"""

OF_ANY_PROCESS: tuple[Kind, ...] = ("kill", "segfault", "exception", "hang", "stop", "clock")
"""What can happen to the coordinator, too, which takes calls and no messages."""

OF_MESSAGES: tuple[Kind, ...] = ("drop", "duplicate", "corrupt", "delay")
"""What happens to the next message that a role sends."""

NEEDS_A_PROCESS: tuple[Kind, ...] = ("kill", "segfault", "hang", "stop", "clock", "corrupt")
"""What needs a process of the role's own, and a link to it."""

DRAWN: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind != "wrong_bits")
"""What is drawn by default: without ``runtime.verify`` nobody finds wrong bits."""

_SECONDS: dict[str, float] = {
    "slow": 0.2,
    "partition": 2.0,
    "delay": 0.2,
    "clock": 3600.0,
}

_TEXT = re.compile(
    r"(?P<role>[a-z]+-\d+)@(?P<step>\d+)(/(?P<moment>\w+))?:(?P<kind>\w+)"
    r"(=(?P<seconds>[-\d.]+))?(\*(?P<times>\d+))?"
)
_FORM = "ROLE@STEP[/MOMENT]:KIND[=SECONDS][*TIMES], such as csx-1@51:kill"

_PROGRESS = "progress"


class Fault(Config):
    """One fault. It happens ``times`` times in a run, however often the role is replaced."""

    role: str
    step: PositiveInt
    kind: Kind
    moment: Moment = "any"
    seconds: NonNegativeFloat = 0.0
    times: PositiveInt = 1

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, given: Any) -> Any:
        if isinstance(given, str):
            matched = _TEXT.fullmatch(given)
            if matched is None:
                raise PydanticCustomError("fault_text", f"a fault, written {_FORM}")
            given = {name: text for name, text in matched.groupdict().items() if text is not None}
        if isinstance(given, dict) and given.get("kind") in _SECONDS:
            return {"seconds": _SECONDS[given["kind"]], **given}
        if isinstance(given, dict) and given.get("kind") == "wrong_bits":
            return {"moment": "weights", **given}  # inputs of a step come while another is computed
        return given

    def __str__(self) -> str:
        moment = "" if self.moment == "any" else f"/{self.moment}"
        seconds = f"={self.seconds:g}" if self.seconds else ""
        times = f"*{self.times}" if self.times > 1 else ""
        return f"{self.role}@{self.step}{moment}:{self.kind}{seconds}{times}"


class RandomFaults(Config):
    """Faults that are drawn: every kind at every role in turn, in a random order."""

    count: PositiveInt
    seed: NonNegativeInt = 0
    """Equal seeds draw equal faults, for equal roles."""
    first_step: PositiveInt = 1
    last_step: PositiveInt
    kinds: tuple[Kind, ...] = DRAWN

    def draw(self, roles: Sequence[str]) -> Iterator[Fault]:
        """Yield the faults in the order of their steps.

        Args:
            roles: The roles that may fail.
        """
        order = random.Random(self.seed)
        pairs = [(role, kind) for role in roles for kind in self.kinds if _can_be(role, kind)]
        drawn: list[tuple[str, Kind]] = []
        while len(drawn) < self.count:
            order.shuffle(pairs)
            drawn += pairs
        steps = sorted(order.choices(range(self.first_step, self.last_step + 1), k=self.count))
        for step, (role, kind) in zip(steps, drawn[: self.count], strict=True):
            yield Fault.model_validate({"role": role, "step": step, "kind": kind})


class FaultPlan(Config):
    """All faults of a run: those that are stated, and those that are drawn."""

    stated: tuple[Fault, ...] = ()
    random: RandomFaults | None = None
    folder: Path | None = None
    """Folder that notes which faults have happened, by default in model_dir: none happens again."""

    def faults(self, roles: Sequence[str]) -> tuple[Fault, ...]:
        """Return the faults of a cluster with these roles.

        Raises:
            ConfigError: A fault names another role.
        """
        for fault in self.stated:
            if fault.role not in roles:
                raise ConfigError(
                    "a fault must name a role of the cluster",
                    code="not-one-of",
                    where="runtime.faults",
                    value=fault,
                    rule=", ".join(roles),
                )
        return (*self.stated, *(self.random.draw(roles) if self.random else ()))


def _can_be(role: str, kind: Kind) -> bool:
    """Return whether a fault can happen to a role.

    Weight servers alone write to a disk, and systems alone compute gradients.
    """
    if role == COORDINATOR:
        return kind in OF_ANY_PROCESS
    if kind == "wrong_bits":
        return role.startswith(node_name(0)[:-1])
    return kind != "disk" or role.startswith(server_name(0)[:-1])


class FaultLog:
    """The occurrences of faults so far, kept in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def claim(self, fault: Fault) -> bool:
        """Return whether a fault may happen once more, and note that it does."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for index in range(fault.times):
            try:
                self._file(fault, index).touch(exist_ok=False)
            except FileExistsError:
                continue
            return True
        return False

    def happened(self, fault: Fault) -> list[float]:
        """Return the times at which a fault has happened, in seconds since 1970."""
        files = (self._file(fault, index) for index in range(fault.times))
        return [path.stat().st_mtime for path in files if path.exists()]

    def note_progress(self, step: int) -> None:
        """Note that a weight server receives gradients of a step now."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / _PROGRESS).open("a") as file:  # a line is appended as one
            file.write(f"{time.time()} {step}\n")

    def progress(self) -> list[tuple[float, int]]:
        """Return times, in seconds since 1970, and the steps whose gradients arrived then."""
        file = self._folder / _PROGRESS
        lines = file.read_text().splitlines() if file.exists() else []
        return sorted((float(at), int(step)) for at, step in map(str.split, lines))

    def _file(self, fault: Fault, index: int) -> Path:
        return self._folder / f"{str(fault).replace('/', '.')}#{index}"
