"""``waferstream plan``: how one step lies on a machine, without a curve around it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from appliance.spec import ClusterSpec
from waferstream.config.params import Params
from waferstream.host.terminal import line_width
from waferstream.machine.sram import sram_report
from waferstream.scaling.sweep import SimulationRequest
from waferstream.simulation.output import plan_text
from waferstream.simulation.session import (
    checked_studies,
    choices_of,
    labels_of,
    priced,
    simulate_study,
    with_note,
)


def run_plan(params: Params, request: SimulationRequest, cluster: ClusterSpec) -> list[Any]:
    """Print how a step lies on each machine that is asked for; return the same as plain data.

    Raises:
        WaferStreamError: The configuration is wrong, or the model does not fit the machine.
    """
    count = params.trainer.init.backend.cluster_config.num_csx
    choices = choices_of(cluster.machine, request.machines)
    machines = [priced(cluster, choice.machine, request.prices) for choice in choices]
    found = []
    for study, choice in zip(
        checked_studies(params, machines, (count,), request), choices, strict=True
    ):
        labels = labels_of(params, study)
        result = with_note(simulate_study(study, labels, (count,), count, request), choice.note)
        memory = sram_report(study.simulator.sram_plan(study.micro_batch_size(count)))
        print(f"\n{plan_text(result, memory, line_width())}", flush=True)
        found.append({"plan": replace(result, configuration={}), "sram": memory})
    return found
