"""What a user has set for a program: its device, its cluster, its folders, and how far it runs."""

from __future__ import annotations

from pathlib import Path

import torch

from appliance.elaboration.elaborate import ClusterSize
from cstorch.cluster import job_settings
from cstorch.cluster.artifacts import DEFAULT, Artifacts
from cstorch.cluster.config import ClusterConfig, current_witness, launch
from cstorch.cluster.management import ClusterManagement
from cstorch.cluster.starting import size_of
from cstorch.devices import BackendType, Device
from waferstream.compiler.artifact import ArtifactCache
from waferstream.core.errors import ConfigError
from waferstream.core.program.program import ProgramKind


class ProgramSettings:
    """The settings of a program.

    Args:
        backend_type: CSX, CPU or GPU.
        artifact_dir: The folder for what the program leaves beside its checkpoints.
        cluster_config: Sizes and machine of the cluster.
        compile_dir: The folder of the compile cache, if another one than in ``artifact_dir``.
        compile_only: Compile, and run nothing.
        validate_only: Check that every op has a kernel, and run nothing.
        seed: Seed of the random ops of all steps.
        check_loss: Whether a loss that is not finite ends a job.

    On CPU and GPU the settings of a cluster have no effect; compile_only and validate_only are
    refused.
    """

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
        if not backend_type.is_csx:
            _check_host(backend_type, runs=not (compile_only or validate_only))
        self.backend_type = backend_type
        command = launch.get()
        is_command = command is not None and not command.is_cell
        self.cluster_config = self.resolved(cluster_config)
        self.compile_only = compile_only
        self.validate_only = validate_only
        self.seed = seed
        self.cluster = ClusterManagement(self.cluster_config)
        self.check_loss = check_loss
        self.logs_progress = not is_command
        """Whether loops log progress lines; programs under ``waferstream exec`` have their own."""
        self.bars: tuple[ProgramKind, ...] = tuple(ProgramKind)
        """Loops with a progress bar, on a terminal where log lines go above it."""
        if artifact_dir is None and is_command and current_witness() is None:
            artifact_dir = DEFAULT  # a program that was written for the real machine
        self.artifacts = Artifacts(artifact_dir, compile_dir)

    def use(self, config: ClusterConfig) -> None:
        """Use other settings of the cluster, which does not run yet."""
        self.cluster_config = config
        self.cluster = ClusterManagement(config)

    def resolved(self, asked: ClusterConfig | job_settings.ClusterConfig | None) -> ClusterConfig:
        """Return settings as asked, with those of the command, or with the machine beside it."""
        if isinstance(asked, job_settings.ClusterConfig):
            asked = asked.for_cluster()
        config, command = asked or ClusterConfig(), launch.get()
        if command is not None:
            config = command.applied_to(config)
        elif self.backend_type.is_csx:
            config = config.with_found_machine()
        return config.with_remote_machine() if self.backend_type.is_csx else config

    @property
    def cache(self) -> ArtifactCache | None:
        """The compile cache, if there is one."""
        return self.artifacts.cache

    @property
    def compile_dir(self) -> Path | None:
        """The folder of the compile cache, if there is one."""
        return None if self.cache is None else self.cache.root

    @property
    def is_e2e_execution(self) -> bool:
        """Whether steps are executed, not only compiled or validated."""
        return not (self.compile_only or self.validate_only)

    @property
    def torch_device(self) -> torch.device:
        """The torch device of tensors on the user's side."""
        return torch.device("cuda" if self.backend_type.is_gpu else "cpu")

    @property
    def device(self) -> Device:
        """The context in which models are built: ``with backend.device:``."""
        return Device(self.backend_type.name, self.torch_device)

    def size(self) -> ClusterSize:
        """Return the number of actors of each role."""
        return size_of(self.cluster_config)


def _check_host(backend_type: BackendType, *, runs: bool) -> None:
    """Raise ConfigError where a program cannot run on CPU or GPU."""
    if not runs:
        raise ConfigError(
            "compile_only and validate_only are for CSX",
            code="compile-only-not-csx",
            where="cstorch.backend",
            value=backend_type,
            remedy='cstorch.backend("CSX", ...), which needs no hardware',
        )
    if backend_type.is_gpu and not torch.cuda.is_available():
        raise ConfigError(
            "a GPU backend must find a CUDA device",
            code="no-cuda-device",
            where="cstorch.backend",
            value=backend_type,
            remedy='cstorch.backend("CPU"), or install a build of torch for the GPU',
        )
