"""A decoder over wafers in a row: a step passes all of them, from tokens to scores."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise

import torch

from appliance.coordinator.roles import RecoverableRoles
from csnode.engine.spec import TORCH, EngineSpec
from csnode.inference.stage import Values
from csnode.inference.wafer import (
    CopySequence,
    Extend,
    ForgetSequences,
    TakeCycles,
    WaferSpec,
    WeightSource,
)
from csnode.micro_batch import SramLedger
from waferstream.core.errors import ConfigError, WaferStreamError
from waferstream.core.program.extend import POSITIONS, ROWS, SCORES, TOKENS, ExtendProgram
from waferstream.core.roles.role import Command, Result
from waferstream.core.serving import CacheLostError, Part

log = logging.getLogger("waferstream")


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
            where="--wafers",
            value=num_wafers,
            rule=f"1 to {num_segments}, the layers with embedding and head",
        )
    cuts = [num_segments * place // num_wafers for place in range(num_wafers + 1)]
    return [
        WaferSpec(f"wafer-{place}", program, range(*bounds), weights, engine)
        for place, bounds in enumerate(pairwise(cuts))
    ]


LOSSES = 3
"""Losses of wafers that are mended with no step between them; one more ends the service."""


class Pipeline:
    """Extends sequences by tokens. A wafer that is lost is replaced: CacheLostError says so.

    Args:
        roles: The wafers.
        specs: How they are built, in the order in which tokens pass them.
        memory: Where sequences lease the keys and values of their tokens.
        token_bytes: What a token takes there.
    """

    def __init__(
        self,
        roles: RecoverableRoles,
        specs: Sequence[WaferSpec],
        memory: SramLedger,
        token_bytes: int,
    ) -> None:
        self._roles = roles
        self._specs = specs
        self._names = [spec.name for spec in specs]
        self._memory = memory
        self._token_bytes = token_bytes
        self._leased: set[str] = set()
        self._num_losses = 0  # since the last step

    def extend(self, parts: Sequence[Part]) -> torch.Tensor:
        """Return the scores that the parts ask for, one part after the other, fp32 (N, vocabulary).

        Raises:
            ApplianceResourceExhausted: The memory has no room for the tokens.
        """
        for part in parts:
            self._lease(part.sequence, part.start + len(part.tokens))
        rows = self.rows(parts).split([len(part.tokens) for part in parts])
        asked = zip(rows, parts, strict=True)
        return torch.cat([each[len(each) - part.num_scores :] for each, part in asked]).float()

    def rows(self, parts: Sequence[Part]) -> torch.Tensor:
        """Return the scores after every token of the parts, (tokens, vocabulary)."""
        values = _inputs(parts)
        for name in self._names:
            values = self._do((name,), Extend(tuple(parts), values))[name]
        self._num_losses = 0
        scores: torch.Tensor = values[SCORES][:, 0]
        return scores

    def copy(self, source: str, target: str, tokens: int) -> None:
        """Let a sequence begin with the first tokens of another.

        Raises:
            ApplianceResourceExhausted: The memory has no room for the tokens.
        """
        self._lease(target, tokens)
        self._do(self._names, CopySequence(source, target, tokens))

    def forget(self, sequence: str) -> None:
        """Free what a sequence has, here and on the emulated wafers. Idempotent."""
        self._lease(sequence, 0)
        self._do(self._names, ForgetSequences(frozenset((sequence,))))

    def take_cycles(self) -> Mapping[str, int]:
        """Return the cycles that ``wafer-cycles`` has simulated since, by kernel of the array."""
        taken: Counter[str] = Counter()
        for cycles in self._roles.do(self._names, TakeCycles()).values():
            taken.update(cycles)
        return taken

    def close(self) -> None:
        """End the wafers. Idempotent."""
        self._roles.shutdown()

    def _lease(self, sequence: str, tokens: int) -> None:
        """Let a sequence have the memory of its tokens."""
        self._memory.lease(sequence, tokens * self._token_bytes)
        (self._leased.add if tokens else self._leased.discard)(sequence)

    def _do(self, names: Collection[str], command: Command[Result]) -> Mapping[str, Result]:
        """Let wafers do what a command says; replace those that are lost, and say so."""
        try:
            return self._roles.do(names, command)
        except WaferStreamError as error:
            self._replace_lost(error)
            raise CacheLostError from error

    def _replace_lost(self, error: WaferStreamError) -> None:
        """Replace the wafers that are lost, and those that are lost meanwhile.

        Raises:
            WaferStreamError: No wafer is lost, or too many are.
        """
        lost: frozenset[str] = frozenset()
        while True:
            self._num_losses += 1
            found = self._roles.abort()
            if not found or self._num_losses > LOSSES:
                raise error
            log.warning("Replacing %s: %s", ", ".join(found), error)
            lost |= found.keys()
            try:
                self._roles.rebuild(self._specs, lost)
                self._roles.do(self._names, ForgetSequences(None))
                break
            except WaferStreamError as another:
                error = another
        for sequence in tuple(self._leased):
            self._lease(sequence, 0)


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
