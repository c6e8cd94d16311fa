"""Captured steps at any sequence length, number of layers and density; each is kept.

A capture takes seconds, so it is of few layers and of weights that may have masks: more layers
follow from it exactly (``waferstream.compiler.derivation.stacks``), as do dense weights and other
shares of zeros. Only another sequence length, or a number of layers below those of a capture,
takes another one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from appliance.spec import ClusterSpec
from cstorch.flags import restored
from waferstream.compiler.derivation.scale import captured_sizes
from waferstream.config.params import InitConfig, Params
from waferstream.core.sparsity.levels import Constant
from waferstream.core.sparsity.spec import WeightSparsity
from waferstream.explorer.knobs import LAYERS, SPARSITY
from waferstream.explorer.settings import changed
from waferstream.simulation.capture import (
    AtSize,
    CapturedStep,
    ShallowStep,
    capture_at,
    capture_shallow,
    captured_step,
    example_batch,
    shapes_of,
)
from waferstream.simulator.costed_sizes import PlanCache
from waferstream.training.setup.backend import make_backend
from waferstream.workload.models import group_of_samples, known_config

_DEEP = 16
"""Layers of the model that a few are captured of: enough for a stack to be one."""
_SOME_ZEROS = {"algorithm": "static", "sparsity": 0.5}


@dataclass(frozen=True)
class KeptStep:
    """A captured step, and the SRAM plans that were made for it."""

    step: CapturedStep
    plans: PlanCache = field(default_factory=dict)

    def with_sparse(self, sparse: Sequence[WeightSparsity]) -> KeptStep:
        """Return the step with other masks, which change no plan."""
        return replace(self, step=replace(self.step, sparse=tuple(sparse)))


@dataclass(frozen=True)
class _Family:
    """Steps that differ in their number of layers: of two micro-batch sizes, and of the least."""

    pair: ShallowStep
    one: ShallowStep
    model_class: str


class CapturedSteps:
    """The steps of one params file with changed keys; they are captured one at a time."""

    def __init__(self, files: Params, cluster: ClusterSpec) -> None:
        self._has_own_zeros = files.trainer.init.sparsity is not None
        self._cluster = cluster
        self._families: dict[str, _Family | None] = {}
        self._kept: dict[str, KeptStep] = {}
        self._capturing = Lock()

    def of(self, params: Params) -> KeptStep:
        """Return the step of a configuration, which may take seconds the first time.

        Raises:
            WaferStreamError: It cannot be captured.
        """
        masked = params if self._has_own_zeros else changed(params, {SPARSITY: _SOME_ZEROS})
        key = _name_of(masked)
        with self._capturing:
            if key not in self._kept:
                self._kept[key] = self._captured(masked)
        kept = self._kept[key]
        return kept if self._has_own_zeros else kept.with_sparse(_as_stated(kept.step, params))

    def _captured(self, params: Params) -> KeptStep:
        family = self._family(params)
        if family is not None:
            shapes = shapes_of(params.trainer.init)
            pair, one = family.pair.deepened(shapes), family.one.deepened(shapes)
            if pair is not None and one is not None:
                return _kept(pair, one, family.model_class)
        return self._captured_whole(params)

    def _family(self, params: Params) -> _Family | None:
        """Return the steps with any number of layers, None where they do not follow."""
        model = known_config(params.trainer.init.model.dump(), "trainer.init.model")
        if model is None or not isinstance(getattr(model, "num_hidden_layers", None), int):
            return None
        deep = changed(params, {LAYERS: _DEEP * model.layers_of_unit})
        key = _name_of(deep)
        if key not in self._families:
            self._families[key] = self._captured_family(deep)
        return self._families[key]

    def _captured_family(self, params: Params) -> _Family | None:
        init, shapes = params.trainer.init, shapes_of(params.trainer.init)
        with restored():
            backend = make_backend(params, self._cluster)
            try:
                given = init, backend, _batch(params)
                pair = capture_shallow(*given, _pair_of(init), shapes)
                one = pair and capture_shallow(*given, (_group(init),), shapes)
                if pair is None or one is None:
                    return None
                return _Family(pair, one, type(backend.model).__name__)
            finally:
                backend.shutdown()

    def _captured_whole(self, params: Params) -> KeptStep:
        """Capture all layers of a step."""
        init = params.trainer.init
        with restored():
            backend = make_backend(params, self._cluster)
            try:
                given = init, backend, _batch(params)
                pair = capture_at(*given, _pair_of(init))
                one = capture_at(*given, (_group(init),))
                return _kept(pair, one, type(backend.model).__name__)
            finally:
                backend.shutdown()


def _kept(pair: Sequence[AtSize], one: Sequence[AtSize], model_class: str) -> KeptStep:
    small, large = pair
    step = captured_step(small, large, model_class)
    return KeptStep(replace(step, one_group=one[0].program))


def _as_stated(step: CapturedStep, params: Params) -> tuple[WeightSparsity, ...]:
    """Return the masks of a configuration, which has none or those of the density's knob."""
    stated = params.dump()["trainer"]["init"].get("sparsity")
    if not stated:
        return ()
    level = Constant(value=stated[0]["sparsity"])
    return tuple(replace(spec, level=level) for spec in step.sparse)


def _name_of(params: Params) -> str:
    """Return what of a configuration decides the captured step: model, optimizer, precision."""
    data = params.dump()["trainer"]
    data["fit"]["train_dataloader"].pop("batch_size")
    data["init"].pop("backend", None)
    return repr(data)


def _batch(params: Params) -> Any:
    assert params.trainer.fit is not None, "checked before a page is opened"
    return example_batch(params.trainer.init, params.trainer.fit.train_dataloader)


def _group(init: InitConfig) -> int:
    return group_of_samples(init.model.dump())


def _pair_of(init: InitConfig) -> tuple[int, int]:
    return captured_sizes(_group(init))
