"""The optimizer state that MemoryX holds: that of one optimizer at a time."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from appliance.coordinator.cluster import Cluster
from appliance.coordinator.commands import LoadWeights
from cstorch.cluster.restored import Restored
from cstorch.optim.state import OptimizerState

log = logging.getLogger("waferstream")


class HeldState:
    """Which optimizer's state MemoryX holds, and what moves it there and back."""

    def __init__(self) -> None:
        self.state: OptimizerState | None = None
        """That state, None before the first step of training."""

    def is_in(self, optimizer_dict: Mapping[str, Any]) -> bool:
        """Return whether the state dict of an optimizer is what MemoryX holds."""
        return self.state is not None and self.state.holds(optimizer_dict.get("state", {}))

    def make_way(self, state: OptimizerState) -> None:
        """Bring the state of another optimizer back before MemoryX forgets it."""
        state.adopt_replaced()
        if self.state is not None and self.state != state:
            self.state.settle()
            self.state.keep()
            state.keep()

    def return_state(self, num_new: int = 0) -> None:
        """Bring the state back to this process, since the cluster ends.

        ``num_new`` are the steps that nobody has noted, as their job has failed.
        """
        if self.state is not None:
            self.state.keep(num_new)
            self.state = None

    def lose(self) -> None:
        """Let the state begin anew, since it has ended with its cluster."""
        if self.state is not None:
            self.state.lose()
            self.state = None

    def take(self, state: OptimizerState, cluster: Cluster, restored: Restored | None) -> None:
        """Let MemoryX hold the state of an optimizer, whose rule has been installed.

        If MemoryX has read masks from a checkpoint, the initial ones are dropped first.
        """
        self.state = state
        if state.masks is not None and restored is not None and restored.mask_names:
            state.masks.give_way()
        state.note_installed()
        self.send_changes(cluster)
        state.outdate()

    def adopt_replaced(self) -> None:
        """Note the tensors that the user's program has put in place of those of the state."""
        if self.state is not None:
            self.state.adopt_replaced()

    def send_changes(self, cluster: Cluster) -> None:
        """Send what the user's program has written to MemoryX."""
        if self.state is not None and (changes := self.state.take_changes()):
            log.info("Sending %d tensors of the optimizer's state", len(changes))
            cluster.do(LoadWeights(changes, "optimizer"))
        if self.state is not None and (masks := self.state.take_masks()):
            log.info("Sending %d masks of sparse weights", len(masks))
            cluster.do(LoadWeights(masks, "sparsity"))

    def outdate(self) -> None:
        """Let later reads of the state fetch it: a step of training changes it."""
        if self.state is not None:
            self.state.outdate()

    def reload(self, restored: Restored) -> None:
        """Note that MemoryX has read the states of a checkpoint."""
        if self.state is not None and "optimizer" in restored.states:
            self.state.reload(restored.updates, restored.missed)
