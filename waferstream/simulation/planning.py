"""Wafers or GPUs for one model: both are predicted, with what a budget of tokens costs on each.

Costs, their assumptions and what decides are those of ``waferstream.reports.tco``. Rates and powers
come from a simulation of the step, and of the same step on clusters of GPUs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from appliance.spec import ClusterSpec
from waferstream.config.params import Params
from waferstream.core.errors import ApplianceResourceExhausted, ConfigError
from waferstream.core.units import format_count, format_short
from waferstream.host.files import json_text
from waferstream.machine.hardware import PowerSpec
from waferstream.machine.hardware.choice import choose
from waferstream.reports.curve.result import CurveResult, GpuComparison
from waferstream.reports.tco.comparison import (
    Comparison,
    MachineChoice,
    ProjectSpec,
    SiteSpec,
)
from waferstream.reports.tco.estimates import Estimate, PositiveEstimate
from waferstream.reports.tco.sensitivity import Study as Costs
from waferstream.scaling.gpu_workload import workload_of
from waferstream.scaling.gpus import CLUSTERS, MOST_GPUS, compare_with_gpus
from waferstream.scaling.plan_request import Asked, PlanRequest
from waferstream.scaling.sweep import PLAIN_REQUEST
from waferstream.simulation.capturing import captured_studies
from waferstream.simulation.session import (
    budget_without_tokens,
    labels_of,
    simulate_study,
)
from waferstream.simulation.study import Study

_NODE = 8
"""GPUs of a node: more than one node are whole ones, unless another number is asked for."""


@dataclass(frozen=True)
class Plan:
    """Machines with their predictions and costs."""

    simulation: CurveResult
    costs: Costs

    @property
    def headline(self) -> str:
        """Model, batch and budget in one line."""
        result, tokens = self.simulation, self.costs.values["project.tokens_per_run"]
        return (
            f"{result.model.name}, {format_count(result.model.parameters)} parameters, batch of "
            f"{result.batch_size:,} samples, {format_short(tokens)} tokens"
        )

    @property
    def note(self) -> str:
        """How far to trust the predictions."""
        assert self.simulation.gpus is not None
        return self.simulation.gpus.note


def plan(params: Params, request: PlanRequest, cluster: ClusterSpec) -> Plan:
    """Predict a training step on all machines that are asked for, and what the budget costs.

    Raises:
        WaferStreamError: The request or the configuration is wrong, or the model does not fit.
    """
    own_count = params.trainer.init.backend.cluster_config.num_csx
    systems = [replace(one, count=one.count or own_count) for one in request.systems]
    simulation = _simulated(params, request, cluster, systems)
    power = cluster.machine.power
    choices = (
        *(_system(request, one, power) for one in systems),
        *(_gpus(request, one) for one in _counted(simulation, request)),
    )
    comparison = Comparison(
        people=request.prices.people,
        currency=request.prices.currency,
        site=_site(request.prices.site, power),
        project=ProjectSpec(
            runs=PositiveEstimate(value=request.runs, source="--runs"),
            tokens_per_run=PositiveEstimate(value=request.tokens, source="--budget"),
        ),
        machines=choices,
    )
    return Plan(simulation, Costs.of(comparison, json.loads(json_text(simulation))))


def _simulated(
    params: Params, request: PlanRequest, cluster: ClusterSpec, systems: Sequence[Asked]
) -> CurveResult:
    """Return the curve of the first system, with those of the others and of the GPUs."""
    machines = [choose(cluster.machine, one.name, "--system").machine for one in systems]
    clusters = [cluster.model_copy(update={"machine": machine}) for machine in machines]
    counts = sorted({one.count or 1 for one in systems})
    studies = captured_studies(params, clusters, counts)
    labels = labels_of(params, studies[0])
    first, *others = (
        simulate_study(study, labels, (count,), count, PLAIN_REQUEST)
        for study, one in zip(studies, systems, strict=True)
        for count in [one.count or 1]
    )
    gpus = _gpu_curves(studies[0], request, counts[0])
    return replace(first, others=tuple(others), gpus=gpus)


def _gpu_curves(study: Study, request: PlanRequest, num_csx: int) -> GpuComparison:
    """Return the curves of the GPUs that are asked for, up to a node for each sample."""
    if study.tokens_per_sample is None:
        raise budget_without_tokens(request.tokens, "--budget")
    workload = workload_of(study.costed(num_csx).program)
    if workload is None:
        raise ConfigError(
            "the model cannot be compared with GPUs",
            code="model-without-gpu-workload",
            where="trainer.init.model",
            value=study.model_class or None,
            rule="a dense transformer over tokens, all of whose weights multiply every token",
            remedy="simulate CS systems alone: run.py --simulate --token_budget",
        )
    most = min(MOST_GPUS, _NODE * study.batch_size)
    asked = (one.count for one in request.gpus if one.count is not None)
    return compare_with_gpus(
        workload,
        study.batch_size,
        study.simulator.machine.power,
        tuple(dict.fromkeys(one.name for one in request.gpus)),
        sorted({1, 2, 4, *range(_NODE, most + 1, _NODE), *asked}),
        compiled=request.compiled,
    )


def _counted(simulation: CurveResult, request: PlanRequest) -> Iterator[Asked]:
    """Yield the GPUs that are asked for, with a count at which the model fits."""
    assert simulation.gpus is not None
    prediction = simulation.points[0].prediction
    assert prediction is not None
    assert prediction.tokens_per_s is not None, "checked before"
    for asked in request.gpus:
        points = (
            point
            for curve in simulation.gpus.curves
            if curve.gpu == CLUSTERS[asked.name].gpu.name
            for point in curve.fitting
        )
        rates: dict[int, float] = {}
        for point in points:
            rates[point.gpus] = max(point.tokens_per_s, rates.get(point.gpus, 0.0))
        yield replace(asked, count=_count(asked, rates, prediction.tokens_per_s))


def _count(asked: Asked, rates: Mapping[int, float], tokens_per_s: float) -> int:
    """Return the asked number of GPUs, the least one that is so fast, or else the fastest."""
    if asked.count is not None and asked.count in rates:
        return asked.count
    if asked.count is not None or not rates:
        fitting = f"{min(rates):,} to {max(rates):,} GPUs" if rates else "no number of GPUs"
        raise ApplianceResourceExhausted(
            "the model cannot be trained on these GPUs",
            code="gpus-without-room",
            where="--gpu",
            value=asked.name if asked.count is None else f"{asked.name}:{asked.count}",
            rule=f"a copy of the model fits and has a sample of the batch: {fitting}",
        )
    fast = [count for count, rate in rates.items() if rate >= tokens_per_s]
    return min(fast) if fast else max(rates, key=lambda count: rates[count])


def _system(request: PlanRequest, asked: Asked, power: PowerSpec) -> MachineChoice:
    """Return a number of systems, at the price of the machine unless another is stated."""
    needs = request.prices.needs(asked.name)
    if needs.hour_usd is None and (own := _stated(power, "system_hour_usd")) is not None:
        needs = needs.model_copy(update={"hour_usd": own})
    name = f"{asked.count} {asked.name}"
    return MachineChoice(**dict(needs), name=name, system=asked.name, count=asked.count or 1)


def _gpus(request: PlanRequest, asked: Asked) -> MachineChoice:
    needs = request.prices.needs(asked.name)
    name = f"{asked.count} {asked.name}"
    return MachineChoice(**dict(needs), name=name, gpu=asked.name, count=asked.count or 1)


def _site(site: SiteSpec, power: PowerSpec) -> SiteSpec:
    """Return a site with the numbers of machine.power that differ from the published ones."""
    keys = ("pue", "grid_kg_per_kwh", "kwh_usd")
    own = {key: _stated(power, key) for key in keys if key not in site.model_fields_set}
    return site.model_copy(update={key: one for key, one in own.items() if one is not None})


def _stated(power: PowerSpec, key: str) -> Estimate | None:
    """Return a number of machine.power; None for the published one, which has a range."""
    value = getattr(power, key)
    if value == getattr(PowerSpec(), key):
        return None
    kind = PositiveEstimate if key == "pue" else Estimate
    return kind(value=value, source=f"machine.power.{key} of cluster.yaml")
