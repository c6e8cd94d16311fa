"""Backends for CPU and GPU, on which the same program runs as plain PyTorch.

There is no cluster: steps run in the user's process (``cstorch.tracing.eager``). Weights and
optimizer state are kept by a weight server all the same, so that tensors, checkpoints and updates
behave as on CSX.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from appliance.host_cluster import HostCluster
from cstorch.backend import Backend
from cstorch.cluster.restored import load_weights
from cstorch.devices.backend_type import BackendType
from cstorch.optim.state import OptimizerState
from waferstream.core.errors import ConfigError
from waferstream.core.optimizer.loss_scale import LossScale
from waferstream.core.optimizer.spec import OptimizerSpec
from waferstream.core.program.program import Mode, TensorSpec
from waferstream.core.roles.commands import TrainWith
from waferstream.numerics.precision import StreamPrecision


class HostBackend(Backend):
    """A CPU or GPU backend, made by ``cstorch.backend``. Options are those of ``Backend``.

    Those that describe a cluster have no effect; compile_only and validate_only are refused.
    """

    is_csx = False

    def __init__(self, backend_type: BackendType, *arguments: Any, **options: Any) -> None:
        super().__init__(backend_type, *arguments, **options)
        self.is_cpu, self.is_gpu = backend_type.is_cpu, backend_type.is_gpu
        if not self.is_e2e_execution:
            raise ConfigError(
                "compile_only and validate_only are for CSX",
                code="compile-only-not-csx",
                where="cstorch.backend",
                value=backend_type,
                remedy='cstorch.backend("CSX", ...), which needs no hardware',
            )
        if self.is_gpu and not torch.cuda.is_available():
            raise ConfigError(
                "a GPU backend must find a CUDA device",
                code="no-cuda-device",
                where="cstorch.backend",
                value=backend_type,
                remedy='cstorch.backend("CPU"), or install a build of torch for the GPU',
            )
        self.mode_of: dict[object, Mode] = {}
        """What the loops over a loader did, by its source."""
        self._trained: frozenset[str] = frozenset()

    @property
    def trained(self) -> frozenset[str]:
        return self._trained

    @property
    def torch_device(self) -> torch.device:
        """The torch device of tensors on the user's side."""
        return torch.device("cuda" if self.is_gpu else "cpu")

    def stream(self, precision: StreamPrecision) -> Mapping[str, torch.Tensor]:
        """Return the weights of the next step by name, in stream dtype on the device."""
        cluster, weights = self._host(), self._registered()
        self._execution.send_changes(weights)
        return {
            name: cluster.master(name).to(self.torch_device, precision.stream_dtype)
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

    def _train_with(self, optimizer: OptimizerSpec, state: OptimizerState | None) -> None:
        """Let the next steps end with an update, whose state the weight server takes."""
        execution, host = self._execution, self._host()
        if state is not None:
            execution.held.make_way(state)
        host.do(TrainWith(optimizer))
        if state is not None:
            execution.held.take(state, host, execution.restored)

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
        step, host = self.global_step + 1, self._host()
        self._train_with(optimizer, state)
        after = host.update(gradients, optimizer, step, loss_scale)
        self._registered().outdate()
        self.steps.done = step
        self._trained = frozenset(gradients)
        return after

    def _host(self) -> HostCluster:
        """Return the weight server, which starts with the first step."""
        execution, weights = self._execution, self._registered()
        if execution.cluster is None:
            specs = [TensorSpec(n, tuple(t.shape), "float32") for n, t in weights.local().items()]
            cluster = HostCluster(specs, self.cluster_config.cluster.machine)
            load_weights(cluster, weights, execution.restored)
            execution.cluster = cluster
        assert isinstance(execution.cluster, HostCluster)
        return execution.cluster
