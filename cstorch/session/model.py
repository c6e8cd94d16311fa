"""The model of a program, with its values and the steps of training that it has had.

Values are in the user's process, a checkpoint or MemoryX. Steps count over loops and over restarts.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn

from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import HashWeights
from cstorch.cluster.execution import Execution
from cstorch.remote.tensor import Holder
from cstorch.remote.weights import Weights
from waferstream.compiler.capture.traced_buffers import TracedBuffers
from waferstream.core.errors import WaferStreamError, WeightsLostError

log = logging.getLogger("waferstream")


class HeldModel:
    """The registered model and its weights.

    Args:
        execution: The cluster that holds the weights while it runs.
    """

    def __init__(self, execution: Execution) -> None:
        self._execution = execution
        self.module: nn.Module | None = None
        self.weights: Weights | None = None

    @property
    def registered(self) -> Weights:
        """The weights of a model that has been registered."""
        assert self.weights is not None, "a step is installed after its model is registered"
        return self.weights

    def register(self, module: nn.Module, holder: Holder) -> bool:
        """Register the model whose weights MemoryX will hold; return whether it is new.

        Args:
            module: The model; one per session.
            holder: Where its remote tensors find their values.

        Raises:
            WaferStreamError: Another model is registered.
        """
        if self.module is not None and self.module is not module:
            raise WaferStreamError(
                "a second model is compiled in one process",
                code="second-model",
                rule="one model per backend",
            )
        if self.weights is not None:
            return False
        self.module, self.weights = module, Weights(module, holder)
        self.outdate_restored()
        return True

    def unregister(self) -> None:
        """Forget the registered model, so that a capture can register it at another depth."""
        self.module = self.weights = None

    def outdate_restored(self) -> None:
        """Let the weights that a checkpoint has be read from there."""
        if self.weights is not None:
            self._execution.outdate_restored(self.weights)

    def make_plain(self) -> None:
        """Turn model and optimizer into ordinary ones with their newest values.

        Raises:
            WeightsLostError: Those have ended with the cluster, and no job has failed for it: model
                and optimizer keep what this process has. After a failed job a warning says so.
        """
        if self.weights is None:
            return
        try:
            self.weights.fetch()
            self._execution.held.return_state()
        except WaferStreamError as error:
            self._execution.held.lose()
            lost = WeightsLostError(
                "the trained weights are lost",
                code="weights-lost",
                where="the model",
                value=error.what,
                rule="it has those that this process has read last, else the initial ones",
                remedy="load the newest checkpoint before the model is used",
            )
            if not self._execution.has_failed:
                raise lost from error
            log.warning("%s", lost)
        finally:
            self.weights.make_plain()

    def traced_buffers(self) -> TracedBuffers:
        """Return the buffers that a step may write, for one trace."""
        return self.registered.state.traced()

    def constants(self) -> list[tuple[torch.Tensor, int]]:
        """Return the buffers that programs read as constants, and how often each was written."""
        return self.registered.state.constants()

    def adopt_state(self, names: Collection[str]) -> bool:
        """Let the cluster hold buffers; return whether one was a constant until now."""
        return self.registered.state.adopt(names)

    def is_held_in(self, state_dict: Mapping[str, Any]) -> bool:
        """Return whether a dict has every parameter of the model, as MemoryX holds it."""
        return self.weights is not None and self.weights.are_in(state_dict)

    def digest(self) -> str:
        """Return the SHA-256 of the weights that MemoryX holds now."""
        return self.up_to_date().do(HashWeights())

    def up_to_date(self) -> Cluster:
        """Return the running cluster, which has all weights that the program has changed."""
        self._execution.running()
        return self._execution.up_to_date(self.registered)


class StepCount:
    """How many steps of training are done, and after which one this program began."""

    def __init__(self) -> None:
        self.done = 0
        self.restored = 0
        """The step that a restored checkpoint has begun at: steps before it count."""
        self.resumed = 0
        """The step after which a program goes on with states that it has loaded."""
        self._loaded_updates = self._loaded_skips = 0

    def restore(self, step: int) -> None:
        """Begin after the step of a restored checkpoint."""
        self.done = self.restored = step
        self.resumed = 0

    def note_loaded(self, updates: int | None = None, skips: int | None = None) -> None:
        """Begin after the steps that loaded states have seen, unless steps were done here.

        So random ops do not draw the numbers of the first steps again.

        Args:
            updates: Updates that the state of an optimizer has seen.
            skips: Steps that a loss scale has skipped because of an overflow.
        """
        if self.done != self.resumed or self.restored:
            return
        self._loaded_updates = self._loaded_updates if updates is None else updates
        self._loaded_skips = self._loaded_skips if skips is None else skips
        done = self._loaded_updates + self._loaded_skips
        self.done = self.resumed = done if self._loaded_updates else 0
