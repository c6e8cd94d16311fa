"""The backend: the device of a user's program, and the cluster behind it.

There is one per process. It holds the settings of the program (number of systems, compile folder)
and, from the first traced step on, the running cluster. ``shutdown`` ends the cluster, after which
another backend can be made.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from appliance.cluster import Cluster, lanes_on, start_cluster
from appliance.coordinator import StepResult
from appliance.elaborate import ClusterSize, plan_installation, start_up_of
from cstorch import distributed
from cstorch.cluster import STATES, ClusterConfig, Restored, launch, load_weights
from cstorch.loop import Loop
from cstorch.weights import Weights, as_arrays
from timing.start_up import StartUp
from timing.trace import write_trace
from wsc.checkpoint import MODEL
from wsc.checkpoint.reader import Reader
from wsc.checkpoint.writer import append_links, append_tensors
from wsc.compiler.artifact import ArtifactCache
from wsc.compiler.compiled import Compiled
from wsc.core.errors import (
    ApplianceError,
    ApplianceNanError,
    ConfigError,
    WaferStreamError,
    did_you_mean,
)
from wsc.core.installation import InputFeed, Installation
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import Mode
from wsc.core.units import format_ps

log = logging.getLogger("waferstream")


class Backend:
    """A CSX backend, made by ``cstorch.backend``."""

    is_csx = True
    is_cpu = is_gpu = False

    def __init__(
        self,
        backend_type: str,
        *,
        cluster_config: ClusterConfig | distributed.ClusterConfig | None = None,
        compile_dir: Path | str | None = None,
        compile_only: bool = False,
        validate_only: bool = False,
        seed: int = 0,
        check_loss: bool = True,
    ) -> None:
        if backend_type.upper() != "CSX":
            raise ConfigError(
                "backend_type must be CSX",
                code="backend-not-csx",
                value=backend_type,
                remedy="plain PyTorch runs on CPU and GPU without WaferStream",
            )
        if compile_only and validate_only:
            raise ConfigError(
                "compile_only and validate_only exclude each other",
                code="compile-only-and-validate-only",
            )
        self.backend_type = "CSX"
        if isinstance(cluster_config, distributed.ClusterConfig):
            cluster_config = cluster_config.for_cluster()
        config = cluster_config or ClusterConfig()
        command = launch.get()
        self.cluster_config = config if command is None else command.applied_to(config)
        self.compile_only = compile_only
        self.validate_only = validate_only
        self.seed = seed
        self.check_loss = check_loss
        self.cache = ArtifactCache(Path(compile_dir)) if compile_dir is not None else None
        self.model: nn.Module | None = None
        self.weights: Weights | None = None
        self.loop: Loop | None = None
        self.installed: dict[Mode, tuple[object, object]] = {}  # traced step and source by mode
        self.global_step = 0
        self.cluster: Cluster | None = None
        self.start_up: StartUp | None = None
        """Start-up of the emulated machine with the program that started the cluster."""
        self._restored: Restored | None = None
        self._ends_at_s = math.inf  # of time.monotonic()

    @property
    def is_e2e_execution(self) -> bool:
        """Whether steps are executed, not only compiled or validated."""
        return not (self.compile_only or self.validate_only)

    @property
    def torch_device(self) -> torch.device:
        """The torch device of tensors on the user's side."""
        return torch.device("cpu")

    @property
    @contextmanager
    def device(self) -> Iterator[torch.device]:
        """The context in which models are built: ``with backend.device:``."""
        with self.torch_device:
            yield self.torch_device

    def register(self, model: nn.Module) -> None:
        """Register the model whose weights MemoryX will hold; one per backend."""
        if self.model is not None and self.model is not model:
            raise WaferStreamError(
                "a second model is compiled in one process",
                code="second-model",
                rule="one model per backend",
            )
        if self.weights is None:
            self.model, self.weights = model, Weights(model, self)
            self._outdate_restored(self.weights)

    def unregister(self) -> None:
        """Forget the registered model, so that a capture can register it at another depth."""
        self.model = self.weights = None

    def settle(self) -> None:
        """Run the steps of the current loop that were called and have not run yet."""
        if self.loop is not None:
            self.loop.run_pending()

    def fetch(self, name: str) -> np.ndarray:
        """Return the current value of a parameter from MemoryX, or from the restored checkpoint.

        Raises:
            WaferStreamError: The value ended with the cluster.
        """
        if self.cluster is not None:
            return self.cluster.masters([name])[name]
        if self._restored is None:
            raise WaferStreamError(
                "a weight was read after the cluster had ended",
                code="weight-read-after-shutdown",
                where=name,
                rule="MemoryX holds the trained weights, until backend.shutdown()",
                remedy="read or save model.state_dict() before, or load a checkpoint",
            )
        return self._restored.weight(name)

    def restore(
        self, path: Path, states: Collection[str] = STATES, strict: bool = True
    ) -> dict[str, Any]:
        """Start from a checkpoint, which the weight servers read when the cluster starts.

        Args:
            path: The checkpoint.
            states: Which of its states to restore, of ``STATES``.
            strict: Whether its weights must be exactly those of the model.

        Returns:
            The states of the checkpoint that are not tensors.

        Raises:
            CheckpointError: The checkpoint is damaged.
        """
        reader = Reader(path)
        self._restored = Restored(path.absolute(), frozenset(states), strict)
        if "global_step" in states:
            self.global_step = int(reader.objects.get("global_step", 0))
        if self.cluster is None and self.weights is not None:
            self._outdate_restored(self.weights)
        return reader.objects

    def reload(self) -> None:
        """Read the checkpoint named by ``restore`` into a cluster that runs already."""
        if self.cluster is not None and self._restored is not None:
            self._registered().take_changes()  # the checkpoint replaces them
            self._restored.load_buffers(self._registered().buffers())
            self._restored.load(self.cluster, self._registered())

    def size(self) -> ClusterSize:
        """Return the number of actors of each role."""
        config = self.cluster_config
        machine, runtime = config.cluster.machine, config.cluster.runtime
        workers = max(1, config.num_csx * config.num_workers_per_csx)
        return ClusterSize(
            num_csx=config.num_csx,
            num_servers=config.max_wgt_servers or machine.memoryx.weight_servers,
            num_workers=min(workers, runtime.input_workers, config.num_csx),
            lanes=lanes_on(runtime, config.num_csx),
        )

    def install(self, compiled: Compiled, feed: InputFeed, optimizer: OptimizerSpec | None) -> None:
        """Install a program on the cluster; the first one starts the cluster and sends the weights.

        If starting fails there is no cluster afterwards, so that it can be tried again.
        """
        size = self.size()
        machine = self.cluster_config.cluster.machine
        installation = plan_installation(compiled, feed, optimizer, size, machine)
        if self.cluster is None:
            self.cluster = self._start(installation, size)
            self._log_start_up(installation)
        else:
            self.installed.pop(installation.mode, None)  # no longer installed in all roles
            self.cluster.install(installation)

    def run(self, mode: Mode, first_step: int, last_step: int) -> list[StepResult]:
        """Run steps of an installed program; ApplianceError when the time of the job is over.

        If a run fails or is interrupted, the cluster ends, since it is unknown which of the steps
        were done. After an ApplianceNanError all of them were done, and the cluster stays, so that
        weights and losses can be inspected.
        """
        cluster = self._running()
        self._check_time()
        self._send_changes(cluster)
        if mode == "train":
            self._registered().outdate()
        try:
            results = cluster.run(mode, first_step, last_step, self.check_loss)
        except ApplianceNanError:
            raise
        except BaseException:
            cluster.shutdown()
            raise
        if mode == "train":
            self.global_step = last_step
        return results

    def save(self, path: Path, states: Collection[str], objects: dict[str, Any]) -> None:
        """Write ``states`` of the cluster and plain ``objects`` to a new file.

        The state ``model`` has all names of ``model.state_dict()``: this process writes buffers,
        and links for tied names.
        """
        cluster, weights = self._up_to_date(), self._registered()
        if "model" in states:
            append_tensors(path, MODEL, as_arrays(weights.buffers()))
            append_links(path, MODEL, weights.tied())
        cluster.save(path.absolute(), states, objects)

    def holds(self, state_dict: Mapping[str, Any]) -> bool:
        """Return whether a dict has every parameter of the model, as MemoryX holds it."""
        return self.weights is not None and self.weights.are_in(state_dict)

    def weights_digest(self) -> str:
        """Return the SHA-256 of the weights that MemoryX holds now."""
        return self._up_to_date().digest()

    def shutdown(self) -> None:
        """End the cluster and allow another backend. Idempotent."""
        global _current  # noqa: PLW0603  (the one backend of this process)
        if self.cluster is not None:
            self.cluster.shutdown()
            self.cluster = None
        self._restored = None
        if _current is self:
            _current = None

    def write_trace(self, path: Path) -> None:
        """Write emulated and measured activities so far as a Perfetto trace.

        WaferStreamError if ``ClusterConfig.record`` is off.
        """
        if not self.cluster_config.record:
            raise WaferStreamError(
                "nothing was recorded for a trace",
                code="trace-not-recorded",
                remedy="set ClusterConfig(record=True)",
            )
        emulated, measured = self._running().activities()
        write_trace(path, emulated, measured)

    def _start(self, installation: Installation, size: ClusterSize) -> Cluster:
        """Return a cluster that has its first program and its weights."""
        config = self.cluster_config
        log.info("Preparing to execute using %d CSX", size.num_csx)
        self._ends_at_s = time.monotonic() + (config.job_time_sec or math.inf)
        parameters = installation.program.parameters
        cluster = start_cluster(parameters, size, config.cluster, self.seed, record=config.record)
        try:
            cluster.install(installation)
            self._load_weights(cluster)
        except BaseException:
            cluster.shutdown()
            raise
        return cluster

    def _log_start_up(self, installation: Installation) -> None:
        machine = self.cluster_config.cluster.machine
        self.start_up, checkpoint_ps = start_up_of(installation, machine)
        log.info(
            "Emulated start-up: %s; each checkpoint: %s",
            self.start_up,
            format_ps(checkpoint_ps),
        )

    def _load_weights(self, cluster: Cluster) -> None:
        load_weights(cluster, self._registered(), self._restored)

    def _up_to_date(self) -> Cluster:
        """Return the running cluster after sending it all weights that were changed."""
        cluster = self._running()
        self._registered().adopt_replaced()
        self._send_changes(cluster)
        return cluster

    def _send_changes(self, cluster: Cluster) -> None:
        """Send the weights that the user's program has written to MemoryX."""
        if changes := self._registered().take_changes():
            log.info("Sending %d weights that the program has changed", len(changes))
            cluster.load_weights(changes)

    def _registered(self) -> Weights:
        assert self.weights is not None, "a step is installed after its model is registered"
        return self.weights

    def _outdate_restored(self, weights: Weights) -> None:
        """Let the weights that come from the checkpoint be read from there; read its buffers."""
        if self._restored is not None:
            weights.outdate(self._restored.weight_names)
            self._restored.load_buffers(weights.buffers())

    def _check_time(self) -> None:
        if time.monotonic() > self._ends_at_s:
            raise ApplianceError(
                "the job ran out of time",
                code="job-time-over",
                where="job_time_sec",
                value=f"{self.cluster_config.job_time_sec} s",
                remedy="raise it, or run again to continue from the last checkpoint",
            )

    def _running(self) -> Cluster:
        if self.cluster is None:
            raise WaferStreamError(
                "the cluster is not running",
                code="cluster-not-running",
                remedy="run a traced step in an executor loop first",
            )
        return self.cluster


_current: Backend | None = None


def backend(backend_type: str | None = None, **options: Any) -> Backend:
    """Make the backend of this process, or return it when called without arguments.

    Options are those of ``Backend``.

    Raises:
        RuntimeError: There is a backend already.
        ConfigError: An option is unknown, or has a wrong type or value.
    """
    global _current  # noqa: PLW0603  (the one backend of this process)
    _check_options(options)
    if backend_type is None and not options:
        return current_backend()
    if _current is not None:
        raise RuntimeError("a backend exists already; there is one per process")
    _current = Backend(backend_type or "CSX", **options)
    return _current


def _check_options(options: Mapping[str, Any]) -> None:
    """Raise ConfigError for an option that ``Backend`` does not have, or of another type."""
    known = [name for name in signature(Backend).parameters if name != "backend_type"]
    for name in options:
        if name not in known:
            raise ConfigError(
                f"backend() has no option {name}",
                code="unknown-backend-option",
                where="cstorch.backend",
                rule=f"one of {', '.join(known)}",
                remedy=did_you_mean(name, known) or "leave it out",
            )
    config = options.get("cluster_config")
    if config is not None and not isinstance(config, (ClusterConfig, distributed.ClusterConfig)):
        raise ConfigError(
            "cluster_config must be a cstorch.ClusterConfig",
            code="not-a-cluster-config",
            where="cstorch.backend",
            value=type(config).__name__,
            remedy="cluster_config=cstorch.ClusterConfig(num_csx=2)",
        )


def current_backend() -> Backend:
    """Return the backend of this process; RuntimeError if there is none."""
    if _current is None:
        raise RuntimeError('no backend yet: call cstorch.backend("CSX") first')
    return _current


def existing_backend() -> Backend | None:
    """Return the backend of this process, None if there is none."""
    return _current
