"""The backend: the session of a program under the names that programs use."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_map_only

from appliance.coordinator.cluster import Cluster
from cstorch.cluster.config import ClusterConfig
from cstorch.cluster.management import ClusterManagement
from cstorch.cluster.restored import STATES
from cstorch.devices import BackendType, Device
from cstorch.recording.recorder import active_recorder
from cstorch.session.session import Session


class Backend:
    """The face of a ``session``, which has what this does not name; made by ``cstorch.backend``."""

    appliance = None
    """The vendor's client, of which programs ask how many operations its compiler counted."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._impl = self  # the vendor's backend holds another object under this name

    @property
    def backend_type(self) -> BackendType:
        """CSX, CPU or GPU."""
        return self.session.settings.backend_type

    @property
    def is_csx(self) -> bool:
        return self.backend_type.is_csx

    @property
    def is_cpu(self) -> bool:
        return self.backend_type.is_cpu

    @property
    def is_gpu(self) -> bool:
        return self.backend_type.is_gpu

    @property
    def compile_only(self) -> bool:
        """Whether steps are compiled, and nothing runs."""
        return self.session.settings.compile_only

    @property
    def validate_only(self) -> bool:
        """Whether steps are checked, and nothing runs."""
        return self.session.settings.validate_only

    @property
    def is_e2e_execution(self) -> bool:
        """Whether steps are executed, not only compiled or validated."""
        return self.session.settings.is_e2e_execution

    @property
    def artifact_dir(self) -> Path:
        """The folder for what the program leaves beside its checkpoints (``Artifacts``)."""
        return self.session.settings.artifacts.folder

    @artifact_dir.setter
    def artifact_dir(self, folder: Path | str) -> None:
        self.session.settings.artifacts.folder = folder

    @property
    def cluster_config(self) -> ClusterConfig:
        """Sizes and machine of the cluster."""
        return self.session.settings.cluster_config

    @property
    def cluster(self) -> ClusterManagement:
        """The cluster as the vendor's management interface shows it."""
        return self.session.settings.cluster

    @property
    def torch_device(self) -> torch.device:
        """The torch device of tensors on the user's side."""
        return self.session.settings.torch_device

    @property
    def device(self) -> Device:
        """The context in which models are built: ``with backend.device:``."""
        return self.session.settings.device

    @property
    def is_tracing(self) -> bool:
        """Whether the body of a traced step is being recorded."""
        return active_recorder.get() is not None

    @property
    def model(self) -> nn.Module | None:
        """The model that was compiled, None before."""
        return self.session.model.module

    @property
    def global_step(self) -> int:
        """Steps of training that are done."""
        return self.session.global_step

    @property
    def running_cluster(self) -> Cluster | None:
        """The running cluster, None before the first traced step and after the end."""
        return self.session.execution.cluster

    def to_cpu(self, value: Any) -> Any:
        """Return a tensor, or a structure of tensors, in the memory of the user's process."""
        return tree_map_only(torch.Tensor, torch.Tensor.cpu, value)

    def restore(
        self, path: Path, states: Collection[str] = STATES, strict: bool = True
    ) -> dict[str, Any]:
        """Start from a checkpoint, as ``Session.restore`` does."""
        return self.session.restore(path, states, strict)

    def weights_digest(self) -> str:
        """Return the SHA-256 of the weights that MemoryX holds now."""
        return self.session.model.digest()

    def report(self) -> str:
        """Return a few lines about the steps of training: emulated start-up, rate and causes."""
        return self.session.report()

    def write_trace(self, path: Path) -> list[str]:
        """Write emulated and measured activities so far as a Perfetto trace.

        Returns:
            What ``ClusterConfig.record_limit`` has cut, and what roles have lost, as sentences.

        Raises:
            WaferStreamError: ``ClusterConfig.record`` is off, or no cluster runs.
        """
        execution = self.session.execution
        return execution.trace.write(path, execution.running)

    def end_idle(self) -> None:
        """Make the model an ordinary one with its newest values, then shut down. Idempotent.

        Raises:
            RuntimeError: A loop runs.
            WeightsLostError: The model could not be given its newest values.
        """
        self.session.end_idle()

    def shutdown(self) -> None:
        """End the cluster and allow another backend. Idempotent."""
        self.session.shutdown()
