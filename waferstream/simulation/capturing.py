"""Capture a step once, and study it on machines: the backend stays open meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from appliance.spec import ClusterSpec
from cstorch.backend import Backend
from cstorch.flags import restored
from waferstream.config.params import Params
from waferstream.host.user_state import state_folder
from waferstream.scaling.sweep import PLAIN_REQUEST, SimulationRequest
from waferstream.simulation.capture import capture_step, with_one_group
from waferstream.simulation.captured import CapturedStep
from waferstream.simulation.study import Study, study_of
from waferstream.simulator.simulator import Simulator
from waferstream.training.setup.backend import make_backend


class Capture:
    """A captured step, which is captured for a single group of samples, too, once one is taken."""

    def __init__(self, params: Params, backend: Backend) -> None:
        self._params = params
        self._backend = backend
        self._step: CapturedStep = capture_step(params, backend)
        self._simulators: list[Simulator] = []

    def study(
        self,
        params: Params,
        cluster: ClusterSpec,
        counts: Sequence[int] | None,
        request: SimulationRequest = PLAIN_REQUEST,
    ) -> Study:
        """Return the study of the step on a cluster, for these numbers of systems.

        Args:
            params: The captured configuration, or one that differs in what is not captured: the
                batch and how it is cut.
            cluster: The cluster with the machine.
            counts: Numbers of systems; None where micro-batches of any size are tried.
            request: What the command asks for.

        Raises:
            ConfigError: Sparse weights of a step that the run does not have are asked for.
        """
        stated = self._backend.cluster_config.max_wgt_servers
        num_servers = stated or cluster.machine.memoryx.weight_servers
        study = study_of(params, cluster, self._step, num_servers, request)
        takes_one = counts is None or any(map(study.takes_one_group, counts))
        if takes_one and self._step.one_group is None:
            self._step = with_one_group(self._step, self._params, self._backend)
            study = study_of(params, cluster, self._step, num_servers, request)
        return replace(study, simulator=self._shared(study.simulator))

    def _shared(self, simulator: Simulator) -> Simulator:
        """Return the simulator of an earlier study that is equal, for what it has found already."""
        if simulator not in self._simulators:
            self._simulators.append(simulator)
        return self._simulators[self._simulators.index(simulator)]


def captures_folder() -> Path:
    """Return the folder of captured steps, unless a configuration names one (``compile_dir``).

    It is not the working folder: what only predicts leaves no file there.
    """
    return state_folder() / "captures"


@contextmanager
def capturing(params: Params, cluster: ClusterSpec) -> Iterator[Capture]:
    """Provide the captured step of a configuration.

    Raises:
        WaferStreamError: The step cannot be captured.
    """
    with restored():
        backend = make_backend(params, cluster, compile_dir=captures_folder())
        try:
            yield Capture(params, backend)
        finally:
            backend.shutdown()


def captured_studies(
    params: Params,
    clusters: Sequence[ClusterSpec],
    counts: Sequence[int],
    request: SimulationRequest = PLAIN_REQUEST,
) -> list[Study]:
    """Capture the step once, and return its study on each machine, for these numbers of systems.

    Raises:
        WaferStreamError: The step cannot be captured, or the batch cannot be shared.
    """
    with capturing(params, clusters[0]) as capture:
        return [capture.study(params, cluster, counts, request) for cluster in clusters]
