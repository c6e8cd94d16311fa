"""The turn of a step: what follows the last of the repeated layers, forward and at once backward.

The head of a language model makes a value for every word of the vocabulary, many times what a layer
makes. None of it has to lie there for a whole micro-batch: the wafer takes the turn sample by
sample, forward and backward, and keeps no more than the gradient that goes on to the layer before.
"""

from __future__ import annotations

import re

from wsc.core.program import Footprint, Program

_REPEATED = re.compile(r"\.\d+$")  # "decoder.3": a layer's name ends at its first number


def turn_of(program: Program) -> range:
    """The segments after the last repeated layer's forward and before its backward pass.

    Empty for a program without repeated layers.
    """
    segments = program.segments
    forward = [s.index for s in segments if s.phase == "forward" and _REPEATED.search(s.layer)]
    if not forward:
        return range(0)
    backward = [s.index for s in segments if s.phase == "backward" and _REPEATED.search(s.layer)]
    return range(forward[-1] + 1, min(backward, default=len(segments)))


def of_one_sample(footprint: Footprint) -> Footprint:
    """The footprint of a single sample, whatever the micro-batch."""
    return Footprint(fixed_bytes=footprint.of(1))
