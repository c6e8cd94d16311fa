"""The role of a wafer that answers: what it is asked, and how it is built where it runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from csnode.engine.spec import TORCH, EngineSpec
from csnode.inference.stage import Stage, Values
from waferstream.core.program.extend import ExtendProgram
from waferstream.core.roles.role import Command, Job, RoleContext, RunningJob, not_taken
from waferstream.core.serving import Part


class WeightSource(Protocol):
    """Where weights are; picklable, if a wafer is to load them in another process."""

    def load(self, names: Collection[str]) -> Mapping[str, torch.Tensor]:
        """Return parameters by name."""


@dataclass(frozen=True)
class Extend(Command[Values]):
    """Extend sequences by the tokens of parts; return what the next wafer reads."""

    parts: tuple[Part, ...]
    values: Values


@dataclass(frozen=True)
class CopySequence(Command[None]):
    """Let a sequence begin with the first tokens of another."""

    source: str
    target: str
    tokens: int


@dataclass(frozen=True)
class ForgetSequences(Command[None]):
    """Free what some sequences have; those of all if None. Idempotent."""

    sequences: frozenset[str] | None


@dataclass(frozen=True)
class TakeCycles(Command[Mapping[str, int]]):
    """Return the cycles that were simulated since they were taken last, by kernel of the array."""


@dataclass(frozen=True)
class WaferSpec:
    """How to build a wafer: it loads the weights of its segments, and of no others."""

    name: str
    program: ExtendProgram = field(repr=False)
    segments: range
    weights: WeightSource = field(repr=False)
    engine: EngineSpec = TORCH

    def build(self, context: RoleContext) -> Wafer:  # noqa: ARG002
        """Build the role."""
        segments = self.program.segments[self.segments.start : self.segments.stop]
        names = {name for segment in segments for name in segment.weights}
        weights = self.weights.load(names)
        return Wafer(self.name, Stage(self.program, self.segments, weights, self.engine))


class Wafer:
    """A role that runs a stage; it takes commands, and has no jobs."""

    def __init__(self, name: str, stage: Stage) -> None:
        self.name = name
        self._stage = stage

    def do(self, command: Command[Any]) -> Any:
        """Do what a command says; return its result."""
        match command:
            case Extend(parts, values):
                return self._stage.extend(parts, values)
            case CopySequence(source, target, tokens):
                self._stage.cache.copy(source, target, tokens)
            case ForgetSequences(sequences):
                self._stage.cache.forget(sequences)
            case TakeCycles():
                taken = dict(self._stage.cycles)
                self._stage.cycles.clear()
                return taken
            case _:
                raise not_taken(self.name, command)
        return None

    def begin(self, job: Job) -> RunningJob:  # noqa: ARG002
        """Refuse a job: weights do not stream here."""
        raise TypeError(f"{self.name} has no jobs")
