"""What a user has set for a program: its device, its cluster, its folders, and how far it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from appliance.elaboration.elaborate import ClusterSize
from cstorch.cluster import job_settings
from cstorch.cluster.artifacts import DEFAULT, Artifacts
from cstorch.cluster.config import ClusterConfig, launch
from cstorch.cluster.management import ClusterManagement
from cstorch.cluster.starting import size_of
from cstorch.devices.backend_type import BackendType
from cstorch.devices.device import Device
from waferstream.compiler.artifact import ArtifactCache
from waferstream.core.errors import ConfigError
from waferstream.core.program.program import Mode


class ProgramSettings:
    """The settings of a program, which its backend has.

    Args:
        backend_type: CSX, CPU or GPU.
        artifact_dir: The folder for what the program leaves beside its checkpoints.
        cluster_config: Sizes and machine of the cluster.
        compile_dir: The folder of the compile cache, if another one than in ``artifact_dir``.
        compile_only: Compile, and run nothing.
        validate_only: Check that every op has a kernel, and run nothing.
        seed: Seed of the random ops of all steps.
        check_loss: Whether a loss that is not finite ends a job.
    """

    is_csx = True
    is_cpu = is_gpu = False
    appliance = None
    """The vendor's client, of which programs ask how many operations its compiler counted."""

    def __init__(
        self,
        backend_type: BackendType = BackendType.CSX,
        artifact_dir: Path | str | None = None,
        *,
        cluster_config: ClusterConfig | job_settings.ClusterConfig | None = None,
        compile_dir: Path | str | None = None,
        compile_only: bool = False,
        validate_only: bool = False,
        seed: int = 0,
        check_loss: bool = True,
    ) -> None:
        if compile_only and validate_only:
            raise ConfigError(
                "compile_only and validate_only exclude each other",
                code="compile-only-and-validate-only",
            )
        self.backend_type = backend_type
        command = launch.get()
        self.cluster_config = self._resolved(cluster_config)
        self.compile_only = compile_only
        self.validate_only = validate_only
        self.seed = seed
        self.cluster = ClusterManagement(self.cluster_config)
        self.check_loss = check_loss
        self.logs_progress = command is None
        """Whether loops log progress lines; programs under ``waferstream exec`` have their own."""
        self.bars: tuple[Mode, ...] = ("train", "eval")
        """Loops with a progress bar, on a terminal where log lines go above it."""
        if artifact_dir is None and command is not None and command.witness is None:
            artifact_dir = DEFAULT  # a program that was written for the real machine
        self.artifacts = Artifacts(artifact_dir, compile_dir)

    def _resolved(self, asked: ClusterConfig | job_settings.ClusterConfig | None) -> ClusterConfig:
        """Return settings as asked, with those of the command, or with the machine beside it."""
        if isinstance(asked, job_settings.ClusterConfig):
            asked = asked.for_cluster()
        config, command = asked or ClusterConfig(), launch.get()
        if command is not None:
            return command.applied_to(config)
        return config.with_found_machine() if self.is_csx else config

    @property
    def artifact_dir(self) -> Path:
        """The folder for what the program leaves beside its checkpoints (``Artifacts``)."""
        return self.artifacts.folder

    @artifact_dir.setter
    def artifact_dir(self, folder: Path | str) -> None:
        self.artifacts.folder = folder

    @property
    def cache(self) -> ArtifactCache | None:
        """The compile cache, if there is one."""
        return self.artifacts.cache

    @property
    def is_e2e_execution(self) -> bool:
        """Whether steps are executed, not only compiled or validated."""
        return not (self.compile_only or self.validate_only)

    @property
    def torch_device(self) -> torch.device:
        """The torch device of tensors on the user's side."""
        return torch.device("cpu")

    @property
    def device(self) -> Device:
        """The context in which models are built: ``with backend.device:``."""
        return Device(self.backend_type.name, self.torch_device)

    def size(self) -> ClusterSize:
        """Return the number of actors of each role."""
        return size_of(self.cluster_config)

    def to_cpu(self, value: Any) -> Any:
        """Return a tensor, or a structure of tensors, in the memory of the user's process."""
        return tree_map_only(torch.Tensor, torch.Tensor.cpu, value)
