"""MemoryX alone: weights and optimizer of a program whose steps run as plain PyTorch.

On CPU and GPU the user's process computes the gradients of a step. The masters lie in a weight
server as on a cluster, and its rules apply the update, so that both give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from appliance.coordinator.coordinator import Coordinator
from appliance.coordinator.step_results import check_skipped
from appliance.local import LocalRoles
from memoryx.job.collector import all_finite
from memoryx.job.gradient_changes import LossScaling
from memoryx.optim.clip import clip_coefficient, clip_value_, gradient_norms, total_norm
from memoryx.server import ServerSpec, WeightServer
from waferstream.core.messages.messages import NormTotal
from waferstream.core.optimizer import LossScale, OptimizerSpec
from waferstream.core.program.program import ProgramKind, TensorSpec
from waferstream.core.roles.role import Job, Report
from waferstream.machine.hardware import MachineSpec
from waferstream.simulator.cluster_timing import ClusterTiming


class HostCluster(Coordinator):
    """A weight server in this process, and no system: no program can be installed or run.

    Args:
        parameters: Those of the model, all zero at first.
        machine: The machine of the configuration; it has no work here.
    """

    def __init__(self, parameters: Sequence[TensorSpec], machine: MachineSpec) -> None:
        spec = ServerSpec(0, 1, root="", parameters=tuple(parameters), window=1)
        roles = LocalRoles([spec])
        super().__init__(parameters, 1, ClusterTiming(machine, 1, 1), roles)
        server = roles.role(spec.name)
        assert isinstance(server, WeightServer)
        self._server = server
        server.store.packs = False  # the user's program has views of the masters

    def master(self, name: str) -> torch.Tensor:
        """Return the fp32 master of a parameter, which later updates change."""
        return self._server.store.masters[name]

    @property
    def masked(self) -> frozenset[str]:
        """The weights that have masks."""
        return frozenset(self._server.store.masks)

    def _train_with(self, optimizer: OptimizerSpec) -> None:
        self._server.store.train_with(optimizer)
        self._server.persistence.catch_up()

    def update(
        self,
        gradients: Mapping[str, torch.Tensor],
        optimizer: OptimizerSpec,
        step: int,
        loss_scale: LossScale | None = None,
    ) -> LossScale | None:
        """End a step, counted from 1: unscale, clip and apply the gradients of the batch.

        The order and the formulas are those of ``memoryx.job.collector``. With a dynamic loss scale
        the step is skipped if a gradient is not finite, and the next scale is returned.
        """
        if loss_scale is not None:
            check_skipped(loss_scale, step)
        scaling = LossScaling(optimizer, Job(ProgramKind.TRAIN, step, step, loss_scale))
        totals = {name: _as_fp32(gradient) for name, gradient in gradients.items()}
        flat = list(totals.values())
        for gradient in flat:
            if scaling.scale != 1.0:
                gradient.div_(scaling.scale)
        number = scaling.applied(step)
        pruned = self._server.store.pruned(totals, number).values()
        overflows = optimizer.scale_rule is not None and not all(map(all_finite, pruned))
        if not overflows:
            self._apply(totals, optimizer, number)
        report = Report(self._server.name)
        scaling.advance(NormTotal(step, 0.0, is_finite=not overflows), report)
        return report.loss_scales.get(step)

    def _apply(
        self, totals: Mapping[str, torch.Tensor], optimizer: OptimizerSpec, step: int
    ) -> None:
        """Clip the gradients and apply them."""
        flat = list(totals.values())
        if optimizer.max_gradient_value is not None:
            clip_value_(flat, optimizer.max_gradient_value)
        if optimizer.max_gradient_norm is not None:
            pruned = self._server.store.pruned(totals, step)
            norm = total_norm(gradient_norms(pruned.values()))
            coefficient = clip_coefficient(norm, optimizer.max_gradient_norm)
            for gradient in flat:
                gradient.mul_(coefficient)
        self._server.store.update(totals, step)


def _as_fp32(gradient: torch.Tensor) -> torch.Tensor:
    """Return a copy of a gradient in the form in which servers receive it."""
    return torch.empty(gradient.shape).copy_(gradient)
