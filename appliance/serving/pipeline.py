"""A decoder over wafers in a row: a step passes all of them, from tokens to scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch

from appliance.coordinator.roles import Roles
from csnode.engine.spec import TORCH, EngineSpec
from csnode.inference.stage import Values
from csnode.inference.wafer import (
    CopySequence,
    Extend,
    ForgetSequences,
    WaferSpec,
    WeightSource,
)
from csnode.micro_batch import SramLedger
from waferstream.core.errors import ConfigError
from waferstream.core.program.extend import POSITIONS, ROWS, SCORES, TOKENS, ExtendProgram
from waferstream.core.serving import Part


def wafer_specs(
    program: ExtendProgram, weights: WeightSource, num_wafers: int = 1, engine: EngineSpec = TORCH
) -> list[WaferSpec]:
    """Return wafers that share the segments of a decoder, each about as many in a row.

    Raises:
        ConfigError: There are fewer segments than wafers, or no wafer.
    """
    num_segments = len(program.segments)
    if not 1 <= num_wafers <= num_segments:
        raise ConfigError(
            "each wafer must have a layer",
            code="wafers-without-layers",
            where="--num_wafers",
            value=num_wafers,
            rule=f"1 to {num_segments}, the layers with embedding and head",
        )
    cuts = [num_segments * place // num_wafers for place in range(num_wafers + 1)]
    return [
        WaferSpec(f"wafer-{place}", program, range(*bounds), weights, engine)
        for place, bounds in enumerate(pairwise(cuts))
    ]


class Pipeline:
    """Extends sequences by tokens.

    Args:
        roles: The wafers.
        names: Those of the wafers, in the order in which tokens pass them.
        memory: Where sequences lease the keys and values of their tokens.
        token_bytes: What a token takes there.
    """

    def __init__(
        self, roles: Roles, names: Sequence[str], memory: SramLedger, token_bytes: int
    ) -> None:
        self._roles = roles
        self._names = names
        self._memory = memory
        self._token_bytes = token_bytes

    def extend(self, parts: Sequence[Part]) -> torch.Tensor:
        """Return the scores that the parts ask for, one part after the other, (N, vocabulary).

        Raises:
            ApplianceResourceExhausted: The memory has no room for the tokens.
        """
        for part in parts:
            num_tokens = part.start + len(part.tokens)
            self._memory.lease(part.sequence, num_tokens * self._token_bytes)
        rows = self.rows(parts).split([len(part.tokens) for part in parts])
        asked = zip(rows, parts, strict=True)
        return torch.cat([each[len(each) - part.num_scores :] for each, part in asked])

    def rows(self, parts: Sequence[Part]) -> torch.Tensor:
        """Return the scores after every token of the parts, (tokens, vocabulary)."""
        values = _inputs(parts)
        for name in self._names:
            values = self._roles.do((name,), Extend(tuple(parts), values))[name]
        scores: torch.Tensor = values[SCORES][:, 0]
        return scores

    def copy(self, source: str, target: str, tokens: int) -> None:
        """Let a sequence begin with the first tokens of another.

        Raises:
            ApplianceResourceExhausted: The memory has no room for the tokens.
        """
        self._memory.lease(target, tokens * self._token_bytes)
        self._roles.do(self._names, CopySequence(source, target, tokens))

    def forget(self, sequence: str) -> None:
        """Free what a sequence has, here and on the emulated wafers. Idempotent."""
        self._roles.do(self._names, ForgetSequences(frozenset((sequence,))))
        self._memory.lease(sequence, 0)

    def close(self) -> None:
        """End the wafers. Idempotent."""
        self._roles.shutdown()


def _inputs(parts: Sequence[Part]) -> Values:
    """Return what the first wafer reads."""
    tokens = [[token] for part in parts for token in part.tokens]
    positions = [[part.start + i] for part in parts for i in range(len(part.tokens))]
    found: Mapping[str, object] = {
        TOKENS: torch.tensor(tokens),
        POSITIONS: torch.tensor(positions),
        ROWS: len(tokens),
    }
    return found
