"""A stage of inference: segments of a decoder, their weights, and the cache of its sequences.

It computes rows: tokens of any sequences, each of which has the same bits in any company
(``csnode.inference.kernels``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from csnode.engine.binding import array_of
from csnode.engine.fabric import Run
from csnode.engine.spec import TORCH, EngineSpec
from csnode.inference.attention import CachedAttention
from csnode.inference.cache import KvCache
from csnode.inference.kernels import Kernel, array_kernel, row_kernel
from waferstream.core.program.extend import ROWS, ExtendProgram, ExtendSegment
from waferstream.core.serving import Part

Values = Mapping[str, Any]
"""What passes between segments, by name: tensors with a row for each token, and their number."""


class Stage:
    """Runs segments of a program, one after the other.

    Args:
        program: The program of the whole decoder.
        segments: Which of its segments are run here.
        weights: The parameters that these read, by name.
        engine: What computes their kernels.

    Raises:
        ConfigError: A segment multiplies activations with activations.
    """

    def __init__(
        self,
        program: ExtendProgram,
        segments: range,
        weights: Mapping[str, torch.Tensor],
        engine: EngineSpec = TORCH,
    ) -> None:
        self.cache = KvCache()
        self.cycles: Counter[str] = Counter()
        """Of what ``wafer-cycles`` has simulated, by kernel of the array."""
        self._engine = engine
        self._passed = program.passed_at(segments.stop)
        self._attention = CachedAttention(
            self.cache, array_of(engine, engine.of("", "attention"), self._count)
        )
        self._kernels = [
            (each, self._kernel(each, weights))
            for each in program.segments[segments.start : segments.stop]
        ]

    @torch.no_grad()
    def extend(self, parts: Sequence[Part], values: Values) -> Values:
        """Return what later segments read of the parts' rows: in the end the scores of each."""
        if self._engine.is_torch:
            return self._run(parts, values)
        rows = [
            self._run([part], {name: _row(value, i) for name, value in values.items()})
            for i, part in enumerate(_tokens_of(parts))
        ]
        joined = {name: torch.cat([row[name] for row in rows]) for name in rows[0] if name != ROWS}
        return {**joined, ROWS: len(rows)}

    def _run(self, parts: Sequence[Part], values: Values) -> Values:
        held = dict(values)
        self._attention.begin(parts)
        for segment, kernel in self._kernels:
            found = kernel(*(held[name] for name in segment.inputs))
            held.update(zip(segment.outputs, found, strict=True))
        return {name: held[name] for name in self._passed}

    def _kernel(self, segment: ExtendSegment, weights: Mapping[str, torch.Tensor]) -> Kernel:
        prepare = segment.prepare.build()
        operands = prepare(*(weights[name].detach() for name in segment.weights))
        if self._engine.is_torch:
            return row_kernel(segment, operands, self._attention)
        return array_kernel(segment, operands, self._attention, self._engine, self._count)

    def _count(self, run: Run) -> None:
        self.cycles[run.kernel] += run.cycles


def _tokens_of(parts: Sequence[Part]) -> list[Part]:
    """Return each token of some parts as a part."""
    return [
        Part(part.sequence, part.start + i, (token,))
        for part in parts
        for i, token in enumerate(part.tokens)
    ]


def _row(value: Any, place: int) -> Any:
    """Return a row of a value; of their number, 1."""
    return value[place : place + 1] if isinstance(value, torch.Tensor) else 1
