"""Capture a step once, and study it on machines: a backend that it needs stays open meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from appliance.spec import ClusterSpec
from waferstream.config.params import Params
from waferstream.config.phases import check_sections
from waferstream.scaling.sweep import PLAIN_REQUEST, SimulationRequest
from waferstream.simulation.captured import CapturedStep, captures_folder
from waferstream.simulation.facts import Facts, facts_of
from waferstream.simulation.known import find_known, remember
from waferstream.simulation.study import Study, study_of
from waferstream.simulator.simulator import Simulator

if TYPE_CHECKING:
    from cstorch.backend import Backend


class Capture:
    """A captured step, which is captured for a single group of samples, too, once one is taken.

    Where it is known from an earlier simulation, torch is not imported.

    Args:
        params: The configuration.
        cluster: The machine.
        stack: Ends with the last study; a backend that is made ends with it.
    """

    def __init__(self, params: Params, cluster: ClusterSpec, stack: ExitStack) -> None:
        self._params = params
        self._cluster = cluster
        self._stack = stack
        known = find_known(params)
        self._step: CapturedStep | None
        self._step, self.facts = known or (None, facts_of(params.trainer))
        self._simulators: list[Simulator] = []

    def capture(self) -> CapturedStep:
        """Return the step, which is captured now unless it was before."""
        if self._step is None:
            from waferstream.simulation.capture import capture_step  # noqa: PLC0415  (torch)

            self._step = self._kept(capture_step(self._params, self._backend))
        return self._step

    @cached_property
    def _backend(self) -> Backend:
        import torch  # noqa: PLC0415

        from cstorch.flags import restored  # noqa: PLC0415  (torch)
        from waferstream.training.setup.backend import make_backend  # noqa: PLC0415

        torch.set_num_threads(1)
        self._stack.enter_context(restored())
        backend = make_backend(self._params, self._cluster, compile_dir=captures_folder())
        self._stack.callback(backend.shutdown)
        return backend

    def _kept(self, step: CapturedStep) -> CapturedStep:
        """Note a step that is in the cache for later simulations, and return it."""
        from waferstream.simulation.capture import cache_file_of  # noqa: PLC0415  (torch)

        path = cache_file_of(self._params, self._backend)
        if path is not None:
            remember(self._params, path, self.facts)
        return step

    def _facts_of(self, params: Params) -> Facts:
        return self.facts if params is self._params else facts_of(params.trainer)

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
        stated = self._params.trainer.init.backend.cluster_config.max_wgt_servers
        num_servers = stated or cluster.machine.memoryx.weight_servers
        step, facts = self.capture(), self._facts_of(params)
        study = study_of(params, cluster, step, facts, num_servers, request)
        takes_one = counts is None or any(map(study.takes_one_group, counts))
        if takes_one and step.one_group is None:
            from waferstream.simulation.capture import with_one_group  # noqa: PLC0415  (torch)

            self._step = self._kept(with_one_group(step, self._params, self._backend))
            study = study_of(params, cluster, self._step, facts, num_servers, request)
        return replace(study, simulator=self._shared(study.simulator))

    def _shared(self, simulator: Simulator) -> Simulator:
        """Return the simulator of an earlier study that is equal, for what it has found already."""
        if simulator not in self._simulators:
            self._simulators.append(simulator)
        return self._simulators[self._simulators.index(simulator)]


@contextmanager
def capturing(params: Params, cluster: ClusterSpec) -> Iterator[Capture]:
    """Provide the captured step of a configuration.

    Raises:
        ConfigError: The machine has fewer systems, or model or data are wrong.
    """
    check_sections(params)  # before torch is imported
    cluster.machine.check_systems(params.trainer.init.backend.cluster_config.num_csx)
    with ExitStack() as stack:
        yield Capture(params, cluster, stack)


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
