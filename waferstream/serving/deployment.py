"""How a model is served: on how many wafers, in which processes, computed by what."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path

from appliance.serving.pipeline import Pipeline, wafer_specs
from appliance.serving.proof import PROBE_TOKENS, prove
from appliance.spec import RuntimeSpec
from appliance.starting import start_wafers
from csnode.engine.spec import TORCH, EngineSpec
from csnode.inference.wafer import WeightSource
from csnode.micro_batch import SramLedger
from waferstream.compiler.extend import compile_extend
from waferstream.core.errors import ConfigError
from waferstream.numerics.precision import DTYPES
from waferstream.serving.clock import ServiceClock
from waferstream.serving.models.loading import (
    HeldWeights,
    PlacedWeights,
    ServedModel,
    load_model,
)

LOCAL = RuntimeSpec(kind="local")

LONGEST_PROBED_WINDOW = 256
"""Tokens of the longest window that a probe exceeds, so that a service starts soon."""

PROBE_TOKENS_ON_ARRAY = 2
"""Enough where rows pass one by one anyway; the simulator takes minutes for more."""

CACHE_BYTES = 2 << 30
"""The memory of keys and values on this host; requests wait for room in it, and on the wafers."""


@dataclass(frozen=True)
class Deployment:
    """Where a model is, and what answers.

    Attributes:
        place: The model, as of ``load_model``.
        wafers: Wafers that share its layers.
        runtime: Whether they are in this process, or each in one of its own.
        engine: What computes their kernels.
        dtype: Of weights and activations.
        draft: A smaller model of the same vocabulary, which proposes tokens on a wafer of its own.
    """

    place: Path
    wafers: int = 1
    runtime: RuntimeSpec = LOCAL
    engine: EngineSpec = TORCH
    dtype: str = "float32"
    draft: Path | None = None

    def load(self) -> ServedModel:
        """Load the model.

        Raises:
            ConfigError: There is no model that answers.
            CheckpointError: Its weights are damaged, or of another model.
        """
        return load_model(self.place, DTYPES[self.dtype])

    def load_draft(self, served: ServedModel) -> ServedModel | None:
        """Load the draft of a model, if it has one.

        Raises:
            ConfigError: There is no model that answers, or it has other tokens.
        """
        if self.draft is None:
            return None
        draft = self._of_draft.load()
        if draft.tokens != served.tokens:
            raise ConfigError(
                "a draft must have the tokens of the model",
                code="draft-of-other-tokens",
                where="--draft",
                value=f"{draft.name} with {len(draft.tokens)} tokens",
                rule=f"the {len(served.tokens)} tokens of {served.name}",
                remedy="take a smaller model of the same family",
            )
        return draft

    def start_draft(self, draft: ServedModel, clock: ServiceClock) -> tuple[Pipeline, int]:
        """Start the wafers of a draft, as ``start`` does those of a model."""
        return self._of_draft.start(draft, clock)

    @property
    def _of_draft(self) -> Deployment:
        assert self.draft is not None
        return Deployment(self.draft, dtype=self.dtype)

    def _probe(self, model: ServedModel) -> int:
        """Return the tokens of the probe: of a model with short windows, more than one of them."""
        if not self.engine.is_torch:
            return PROBE_TOKENS_ON_ARRAY
        return PROBE_TOKENS + (model.window if model.window <= LONGEST_PROBED_WINDOW else 0)

    def start(self, model: ServedModel, clock: ServiceClock) -> tuple[Pipeline, int]:
        """Start the wafers of a model that was loaded from here, and prove that rows are steady.

        Args:
            model: The model.
            clock: Its layers on wafers.

        Returns:
            The wafers, and the tokens that their cache has room for.

        Raises:
            ConfigError: The model is not row-wise, or has fewer layers than wafers.
            ClusterJobInitError: The wafers do not start.
        """
        shape = model.shape
        memory = SramLedger("serving", clock.sram_bytes)
        memory.lease("weights", shape.weight_bytes + 2 * shape.head_bytes)
        program = compile_extend(model.scores, model.module)
        is_local = self.runtime.kind == "local"
        weights: WeightSource = (
            HeldWeights(model.module) if is_local else PlacedWeights.of(self.place, model)
        )
        specs = wafer_specs(program, weights, self.wafers, self.engine)
        session = f"waferstream-{secrets.token_hex(16)}"
        roles = start_wafers(specs, self.runtime, session)
        pipeline = Pipeline(roles, specs, memory, shape.cache_bytes(1))
        try:
            prove(pipeline, model.scores, model.vocabulary, model.context, self._probe(model))
            pipeline.take_cycles()
        except BaseException:
            pipeline.close()
            raise
        return pipeline, min(CACHE_BYTES // model.token_bytes, clock.cache_tokens)
