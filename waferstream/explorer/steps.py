"""Captured steps at any sequence length, number of layers and density; each is kept.

A capture takes seconds, so it is of few layers and of weights that may have masks: more layers
follow from it exactly (``waferstream.compiler.derivation.stacks``), as do dense weights and other
shares of zeros. Only another sequence length, or a number of layers below those of a capture,
takes another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from appliance.spec import ClusterSpec
from cstorch.backend import Backend
from cstorch.flags import restored
from waferstream.config.params import Params
from waferstream.core.sparsity.levels import Constant
from waferstream.explorer.knobs import LAYERS, SPARSITY
from waferstream.explorer.settings import changed
from waferstream.simulation.capture import (
    AnyDepth,
    capture_any_depth,
    capture_step,
    with_one_group,
)
from waferstream.simulation.captured import CapturedStep, captures_folder
from waferstream.simulation.step_at_sizes import shapes_of
from waferstream.simulator.costed_sizes import PlanCache
from waferstream.training.setup.backend import make_backend
from waferstream.workload.models import known_config

_MANY = 16
"""Layers of the model that a few are captured of: enough for a stack to be one."""
_SOME_ZEROS = {"algorithm": "static", "sparsity": 0.5}


@dataclass(frozen=True)
class KeptStep:
    """A captured step, and the SRAM plans that were made for it, which no masks change."""

    step: CapturedStep
    plans: PlanCache = field(default_factory=dict)
    _by_zeros: dict[float | None, CapturedStep] = field(default_factory=dict)

    def with_zeros(self, share: float | None) -> CapturedStep:
        """Return the step whose masks have this share of zeros, or that has none."""
        if share not in self._by_zeros:
            level = None if share is None else Constant(value=share)
            masks = () if level is None else (replace(m, level=level) for m in self.step.sparse)
            self._by_zeros[share] = replace(self.step, sparse=tuple(masks))
        return self._by_zeros[share]


class CapturedSteps:
    """The steps of one params file with changed keys.

    Attributes:
        any_depth: Captured steps with any number of layers, None where none follows; by what
            decides them.
    """

    def __init__(self, files: Params, cluster: ClusterSpec) -> None:
        self._has_own_zeros = files.trainer.init.sparsity is not None
        self._cluster = cluster
        self.any_depth: dict[str, AnyDepth | None] = {}
        self._kept: dict[str, KeptStep] = {}

    def of(self, params: Params) -> KeptStep:
        """Return the step of a configuration, which may take seconds the first time.

        Raises:
            WaferStreamError: It cannot be captured.
        """
        masked = self._masked(params)
        key = _name_of(masked)
        if key not in self._kept:
            self._kept[key] = self._captured(masked)
        kept = self._kept[key]
        step = kept.step if self._has_own_zeros else kept.with_zeros(_zeros_of(params))
        return replace(kept, step=step)

    def has(self, params: Params) -> bool:
        """Tell whether the step of a configuration is there without a capture."""
        masked = self._masked(params)
        deep = _deep(masked)
        is_derived = deep is not None and self.any_depth.get(_name_of(deep)) is not None
        return is_derived or _name_of(masked) in self._kept

    def _masked(self, params: Params) -> Params:
        return params if self._has_own_zeros else changed(params, {SPARSITY: _SOME_ZEROS})

    def _captured(self, params: Params) -> KeptStep:
        any_depth = self._of_any_depth(params)
        step = any_depth and any_depth.captured(shapes_of(params.trainer.init))
        return KeptStep(step or self._captured_whole(params))

    def _of_any_depth(self, params: Params) -> AnyDepth | None:
        """Return the step with any number of layers, None where none follows."""
        deep = _deep(params)
        if deep is None:
            return None
        key = _name_of(deep)
        if key not in self.any_depth:
            with self._backend(deep) as backend:
                self.any_depth[key] = capture_any_depth(deep, backend)
        return self.any_depth[key]

    def _captured_whole(self, params: Params) -> CapturedStep:
        """Capture all layers of a step."""
        with self._backend(params) as backend:
            return with_one_group(capture_step(params, backend), params, backend)

    @contextmanager
    def _backend(self, params: Params) -> Iterator[Backend]:
        with restored():
            backend = make_backend(params, self._cluster, compile_dir=captures_folder())
            try:
                yield backend
            finally:
                backend.shutdown()


def _deep(params: Params) -> Params | None:
    """Return a configuration with many layers, None for a model without a number of them."""
    model = known_config(params.trainer.init.model.dump(), "trainer.init.model")
    if model is None or not isinstance(getattr(model, "num_hidden_layers", None), int):
        return None
    return changed(params, {LAYERS: _MANY * model.layers_of_unit})


def _zeros_of(params: Params) -> float | None:
    """Return the share of zeros that the density's knob has stated, None for dense weights."""
    stated = params.dump()["trainer"]["init"].get("sparsity")
    return stated[0]["sparsity"] if stated else None


def _name_of(params: Params) -> str:
    """Return what of a configuration decides the captured step: model, optimizer, precision."""
    data = params.dump()["trainer"]
    data["fit"]["train_dataloader"].pop("batch_size")
    data["init"].pop("backend", None)
    return repr(data)
