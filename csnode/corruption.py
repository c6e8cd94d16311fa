"""Wrong bits on demand: a fault that only a comparison with another system finds."""

from __future__ import annotations

from copy import copy
from itertools import chain

import torch

from csnode.executor import Executor
from csnode.lanes import Executed, Running
from waferstream.core.program.program import ProgramKind

_EXPONENT_BIT = 1 << 26  # of a float: it becomes 256 times as large, or as small


def corrupt_next_gradient(executors: dict[ProgramKind, Executor]) -> None:
    """Flip a bit of the next gradient that the executor of the training computes."""
    right = executors[ProgramKind.TRAIN]
    wrong = copy(right)

    def finish(running: Running) -> Executed:
        executed = right.finish(running)
        for gradient in chain(*executed.gradients.values()):
            executors[ProgramKind.TRAIN] = right
            gradient.part.payload.view(torch.int32)[0] ^= _EXPONENT_BIT
            break
        return executed

    wrong.finish = finish  # type: ignore[method-assign]
    executors[ProgramKind.TRAIN] = wrong
