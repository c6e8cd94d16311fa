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
from waferstream.serving.models.loading import HeldWeights, PlacedWeights, ServedModel

LOCAL = RuntimeSpec(kind="local")

PROBE_TOKENS_ON_ARRAY = 2
"""Enough where rows pass one by one anyway; the simulator takes minutes for more."""


@dataclass(frozen=True)
class Deployment:
    """Where a model is, and what answers.

    Attributes:
        place: The model, as of ``load_model``.
        wafers: Wafers that share its layers.
        runtime: Whether they are in this process, or each in one of its own.
        engine: What computes their kernels.
        dtype: Of weights and activations.
    """

    place: Path
    wafers: int = 1
    runtime: RuntimeSpec = LOCAL
    engine: EngineSpec = TORCH
    dtype: str = "float32"

    def start(self, model: ServedModel, memory: SramLedger, token_bytes: int) -> Pipeline:
        """Start the wafers of a model that was loaded from here, and prove that rows are steady.

        Args:
            model: The model.
            memory: Where sequences lease the keys and values of their tokens.
            token_bytes: What a token takes there.

        Raises:
            ConfigError: The model is not row-wise, or has fewer layers than wafers.
            ClusterJobInitError: The wafers do not start.
        """
        program = compile_extend(model.scores, model.module)
        is_local = self.runtime.kind == "local"
        weights: WeightSource = (
            HeldWeights(model.module) if is_local else PlacedWeights.of(self.place, model)
        )
        specs = wafer_specs(program, weights, self.wafers, self.engine)
        session = f"waferstream-{secrets.token_hex(16)}"
        roles = start_wafers(specs, self.runtime, session)
        pipeline = Pipeline(roles, specs, memory, token_bytes)
        try:
            probe = PROBE_TOKENS if self.engine.is_torch else PROBE_TOKENS_ON_ARRAY
            prove(pipeline, model.scores, model.vocabulary, model.context, probe)
            pipeline.take_cycles()
        except BaseException:
            pipeline.close()
            raise
        return pipeline
