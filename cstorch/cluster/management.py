"""The cluster of a backend as the vendor's management interface shows it."""

from __future__ import annotations

from cstorch.checkpoints import S3Writer
from cstorch.cluster.config import ClusterConfig
from waferstream.core.errors import ConfigError
from waferstream.management.model.job import new_workflow_name


class ClusterManagement:
    """Settings and workflow of the cluster that a backend uses.

    A workflow groups the jobs of a program and reserves systems for them. The emulated cluster
    belongs to its program anyway, so that a workflow is an identifier only.
    """

    client = None
    """Connection to the management node, which does not exist here."""

    def __init__(self, config: ClusterConfig) -> None:
        self._config = config
        self.workflow_id: str | None = None

    @property
    def config(self) -> ClusterConfig:
        """The settings; they cannot be changed after the backend was made."""
        return self._config

    @config.setter
    def config(self, config: object) -> None:
        if config != self._config:
            raise ConfigError(
                "the settings of the cluster must stay those that the backend was made with",
                code="cluster-config-changed",
                where="backend.cluster.config",
                remedy="call backend.shutdown(), then make another backend",
            )

    def join_workflow(self) -> str:
        """Return the identifier of the workflow, which starts with its first job."""
        self.start_workflow()
        assert self.workflow_id is not None, "it was started"
        return self.workflow_id

    def start_workflow(self, lock_resources: bool = False) -> bool:  # noqa: ARG002
        """Start a workflow if there is none; return True."""
        self.workflow_id = self.workflow_id or new_workflow_name()
        return True

    def stop_workflow(self) -> None:
        """End the workflow."""
        self.workflow_id = None

    def check_storage_connectivity(self) -> None:
        """Refuse object stores: CheckpointError."""
        S3Writer.path_exists("s3://")
