"""Steps on CPU and GPU, on which the same program runs as plain PyTorch.

There is no cluster: steps run in the user's process (``cstorch.tracing.eager``). Weights and
optimizer state are kept by a weight server all the same, so that tensors, checkpoints and updates
behave as on CSX.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from appliance.host_cluster import HostCluster
from cstorch.cluster.execution import Execution
from cstorch.cluster.restored import load_weights
from cstorch.optim.state import OptimizerState
from cstorch.session.model import HeldModel, StepCount
from cstorch.session.settings import ProgramSettings
from waferstream.core.optimizer import LossScale, OptimizerSpec
from waferstream.core.program.program import ProgramKind, TensorSpec
from waferstream.core.roles.commands import TrainWith
from waferstream.numerics.precision import StreamPrecision


class HostSteps:
    """What the steps of a session on CPU or GPU read and update."""

    def __init__(
        self, settings: ProgramSettings, execution: Execution, model: HeldModel, steps: StepCount
    ) -> None:
        self.device = settings.torch_device
        self._settings = settings
        self._execution = execution
        self._model = model
        self._steps = steps
        self.kind_of: dict[object, ProgramKind] = {}
        """What the loops over a loader did, by its source."""
        self.trained: frozenset[str] = frozenset()
        """The parameters that the last step of training has given a gradient."""

    def stream(self, precision: StreamPrecision) -> Mapping[str, torch.Tensor]:
        """Return the weights of the next step by name, in stream dtype on the device."""
        cluster, weights = self._host(), self._model.registered
        self._execution.send_changes(weights)
        return {
            name: cluster.master(name).to(self.device, precision.stream_dtype)
            for name in weights.local()
        }

    def makes_masks(self, optimizer: OptimizerSpec, state: OptimizerState | None) -> bool:
        """Let the weight server take an update; return whether that has made masks of weights.

        A step that was computed before has read weights without masks.
        """
        sparse = {spec.name for spec in optimizer.sparsity}
        if sparse <= self._host().masked:
            return False
        self._train_with(optimizer, state)
        return True

    def update(
        self,
        gradients: Mapping[str, torch.Tensor],
        optimizer: OptimizerSpec,
        loss_scale: LossScale | None,
        state: OptimizerState | None,
    ) -> LossScale | None:
        """End a step of training with its update.

        Args:
            gradients: Gradients of the batch, by parameter.
            optimizer: The update rule.
            loss_scale: The scale by which the gradients are to be divided; None without one.
            state: The optimizer's state, which the weight server holds.

        Returns:
            The next loss scale if it is dynamic.
        """
        step, host = self._steps.done + 1, self._host()
        self._train_with(optimizer, state)
        after = host.update(gradients, optimizer, step, loss_scale)
        self._model.registered.outdate()
        self._steps.done = step
        self.trained = frozenset(gradients)
        return after

    def _train_with(self, optimizer: OptimizerSpec, state: OptimizerState | None) -> None:
        """Let the next steps end with an update, whose state the weight server takes."""
        execution, host = self._execution, self._host()
        if state is not None:
            execution.held.make_way(state)
        host.do(TrainWith(optimizer))
        if state is not None:
            execution.held.take(state, host, execution.restored)

    def _host(self) -> HostCluster:
        """Return the weight server, which starts with the first step."""
        execution, weights = self._execution, self._model.registered
        if execution.cluster is None:
            specs = [TensorSpec(n, tuple(t.shape), "float32") for n, t in weights.local().items()]
            cluster = HostCluster(specs, self._settings.cluster_config.cluster.machine)
            load_weights(cluster, weights, execution.restored)
            execution.cluster = cluster
        assert isinstance(execution.cluster, HostCluster)
        return execution.cluster
