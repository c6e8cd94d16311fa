"""Plan a training run: its first and last step, and the steps of logs, checkpoints, evaluations.

Steps count from 1; an action that is due at step s happens after step s.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

from waferstream.config.sections.init import LoopConfig
from waferstream.core.errors import ConfigError

log = logging.getLogger("waferstream")


@dataclass(frozen=True)
class Stage:
    """Training steps without an evaluation in between; ``first`` and ``last`` inclusive."""

    first: int
    last: int
    evaluates: bool  # after the last step

    def relative(self, steps: set[int]) -> list[int]:
        """Return the ``steps`` of this stage, counted from its first step."""
        return sorted(step - self.first + 1 for step in steps if self.first <= step <= self.last)

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class RunPlan:
    """Steps of a run and their actions, from ``start`` (already done) exclusive to ``end``.

    Those up to ``done`` were done by an earlier launch of the same run.
    """

    start: int
    done: int
    end: int
    stages: tuple[Stage, ...]
    log_steps: frozenset[int]
    checkpoint_steps: frozenset[int]


def plan_run(
    loop: LoopConfig,
    *,
    start: int,
    steps_in_epoch: int | None,
    log_every: int,
    checkpoint_every: int,
    evaluates: bool,
    done: int | None = None,
) -> RunPlan:
    """Lay out a run that began after step ``start``, and that goes on after step ``done``.

    Values are logged after the first step, after every multiple of ``log_every``, and at the
    end of each stage; checkpoints are written after multiples of ``checkpoint_every`` (0: never)
    and after the last step. An evaluation after step ``done`` is due: whoever was ended in it, or
    before it, has saved that step.
    """
    done = start if done is None else done
    end = run_end(loop, start, steps_in_epoch)
    due = range(done + 1, end + 1)
    saved = {step for step in due if step % checkpoint_every == 0} if checkpoint_every else set()
    if checkpoint_every:
        saved.add(end)
    every = _eval_interval(loop, end - start) if evaluates else 0
    stages = tuple(_left(_stages(start, end, every), done))
    logged = {step for step in due if step % log_every == 0}
    logged |= {done + 1, *(stage.last for stage in stages)}
    return RunPlan(
        start=start,
        done=done,
        end=end,
        stages=stages,
        log_steps=frozenset(logged & set(due)),
        checkpoint_steps=frozenset(saved & set(due)),
    )


def run_end(loop: LoopConfig, start: int, steps_in_epoch: int | None) -> int:
    """Return the last step: by ``num_steps``, else ``max_steps``, else epochs (default one)."""
    if loop.num_steps is not None:
        end = start + loop.num_steps
        if loop.max_steps not in {None, end}:
            log.warning(
                "max_steps: %s has no effect: num_steps: %d, from step %d on, is the length",
                *(loop.max_steps, loop.num_steps, start),
            )
        return end
    if loop.max_steps is not None:
        return loop.max_steps
    steps = loop.steps_per_epoch or steps_of_epoch(steps_in_epoch, "max_steps or steps_per_epoch")
    return (loop.num_epochs or 1) * steps


def steps_of_epoch(length: int | None, keys: str) -> int:
    """Return the length of a loader; ConfigError that names ``keys`` if it has none."""
    if length is None:
        raise ConfigError(
            "the length of a run must follow from the configuration, or from that of the loader",
            code="num-steps-unknown",
            where="trainer.init.loop",
            value="a loader without length",
            remedy=f"set {keys}",
        )
    return length


def _eval_interval(loop: LoopConfig, num_steps: int) -> int:
    """Return the steps between evaluations."""
    if isinstance(loop.eval_frequency, float):
        return max(1, round(loop.eval_frequency * num_steps))
    return loop.eval_frequency


def _stages(start: int, end: int, every: int) -> Iterator[Stage]:
    first = start + 1
    while first <= end:
        last = min(end, first + every - 1) if every else end
        yield Stage(first, last, evaluates=bool(every))
        first = last + 1


def _left(stages: Iterator[Stage], done: int) -> Iterator[Stage]:
    """Yield what is left of stages after a step; an evaluation alone is a stage without steps."""
    for stage in stages:
        if stage.last > done or (stage.evaluates and stage.last == done):
            yield replace(stage, first=max(stage.first, done + 1))
