"""Two roles that play ping-pong, and may fail in several ways, for tests of RayRoles."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from appliance.ray.roles import RayRoles
from waferstream.core.errors import ConfigError
from waferstream.core.messages.messages import Envelope, WeightsReady
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.role import (
    Command,
    Job,
    Report,
    RoleContext,
    Threadless,
    Waiting,
    not_taken,
)

FOREVER = Job(ProgramKind.TRAIN, 1, 1_000_000_000)


@dataclass(frozen=True)
class PlayerSpec:
    """How to build a player; ``mood`` is what it does with the first ball: return it, or fail."""

    name: str
    peer: str
    serves: bool = False
    mood: str = "fair"

    def build(self, context: RoleContext) -> "Player":
        if self.mood == "unbuildable":
            raise ConfigError("this player cannot be built", code="unbuildable", where=self.name)
        return Player(self, context)


@dataclass(frozen=True)
class Greet(Command[str]):
    """Return a greeting with a player's name."""

    greeting: str


class Player:
    """Plays one match a job."""

    def __init__(self, spec: PlayerSpec, context: RoleContext) -> None:
        self.name = spec.name
        self.spec = spec
        self.context = context

    def begin(self, job: Job) -> "Match":
        return Match(self, job)

    def do(self, command: Command[Any]) -> Any:
        match command:
            case Greet(greeting):
                return f"{greeting} from {self.name}"
        raise not_taken(self.name, command)


class Match(Threadless):
    """Returns the ball; its step counts the strokes, and so do its 1000 fp32 values."""

    def __init__(self, player: Player, job: Job) -> None:
        self.name = player.name
        self.spec = player.spec
        self._context = player.context
        self._hits_left = job.last_step
        self._norms: dict[int, float] = {}

    def start(self) -> Iterator[Envelope]:
        if self.spec.serves:
            yield self._ball(1)

    def handle(self, envelope: Envelope) -> Iterator[Envelope]:
        message = envelope.message
        assert isinstance(message, WeightsReady)
        self._fail()
        with self._context.cores.lease():
            self._norms[message.step] = float(message.payload.view(torch.float32).sum())
        self._hits_left -= 1
        if self.spec.mood == "loses":
            return
        if self._hits_left or not self.spec.serves:
            yield self._ball(message.step + 1)

    @property
    def finished(self) -> bool:
        return self._hits_left == 0

    def report(self) -> Report:
        return Report(self.name, norms=self._norms)

    def waits_for(self) -> Waiting:
        return Waiting("the ball", (self.spec.peer,))

    def _fail(self) -> None:
        if self.spec.mood == "domain error":
            raise ConfigError("no such stroke", code="no-such-stroke", where=self.name, value="lob")
        if self.spec.mood == "defect":
            raise ZeroDivisionError("a defect")
        if self.spec.mood == "dies":
            os._exit(7)
        if self.spec.mood == "slow":
            time.sleep(0.08)
        if self.spec.mood == "hangs":
            time.sleep(1000)

    def _ball(self, step: int) -> Envelope:
        slab = self._context.arena.allocate(4 * 1000)
        slab.view(torch.float32).fill_(step)
        return Envelope(self.name, self.spec.peer, WeightsReady(step, 0, 0, slab))


def players(mood: str = "fair", prefix: str = "") -> list[PlayerSpec]:
    """Return two players; the one that receives the first ball has the given mood."""
    a, b = f"{prefix}a", f"{prefix}b"
    return [PlayerSpec(a, b, serves=True), PlayerSpec(b, a, mood=mood)]


@dataclass(frozen=True)
class Play(Command[dict[str, dict[int, float]]]):
    """Run a job; return the norms of each role."""

    job: Job


@dataclass(frozen=True)
class ReadPids(Command[set[int]]):
    """Return the processes of the roles."""


@dataclass(frozen=True)
class Fail(Command[None]):
    """Let an umpire resign, die, stop or hang."""

    how: str


class Umpire:
    """Object on a coordinator actor: runs jobs on the roles, and may fail itself."""

    def __init__(self, roles: RayRoles) -> None:
        self.roles = roles

    def do(self, command: Command[Any]) -> Any:
        match command:
            case Play(job):
                return {report.role: report.norms for report in self.roles.run(job)}
            case ReadPids():
                return {presence.pid for presence in self.roles.presences.values()}
            case Fail("resign"):
                raise ConfigError("the umpire resigned", code="resigned", value="rain")
            case Fail("die"):
                os._exit(7)
            case Fail("stop"):
                os.kill(os.getpid(), signal.SIGSTOP)
            case Fail("hang"):
                time.sleep(1000)
        return None
