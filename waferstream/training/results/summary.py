"""Summarize a finished run, and log its throughput and where its files lie."""

from __future__ import annotations

import logging
from pathlib import Path

import torch
from torch import nn

from appliance.spec import ClusterSpec
from csnode.engine.regions import layer_regions, operand_dtype
from csnode.engine.spec import EngineSpec, LayerRegion
from cstorch.session.session import Session
from memoryx.sparsity.step_sparsity import sparsity_by_optimizer
from swarmx.topology import swarmx_nodes
from waferstream.config.params import InitConfig, Params
from waferstream.config.sections.init import DataLoaderConfig
from waferstream.core.program.micro_batches import closest_size
from waferstream.core.roles.installation import Installation
from waferstream.core.units import aligned
from waferstream.host.words import VENDOR_LOG
from waferstream.machine.attribution import OVERHEAD_NOTE
from waferstream.machine.energy import EnergyUse, energy_use
from waferstream.machine.hardware import MachineSpec
from waferstream.machine.intervals import AnyInterval, step_interval
from waferstream.reports.amounts import energy_facts
from waferstream.reports.host import describe_host
from waferstream.reports.run.summary import Emulated, Measured, ModelSummary, RunSummary
from waferstream.simulator.cluster_timing import prediction
from waferstream.training.observers.history import History
from waferstream.training.results.run_folder import RunFolder
from waferstream.training.trainer import Outcome
from waferstream.version import VERSION
from waferstream.workload.data import packing_of
from waferstream.workload.packing import Packing

log = logging.getLogger("waferstream")

_LOGGED_SHARE = 0.01  # of the time of a run: shorter waits for a link are not logged

PICTURE_NAME = "loss.png"
"""The picture of a run's losses in its folder, and of all losses in the folder of the model."""


def summarize(
    params: Params,
    cluster: ClusterSpec,
    mode: str,
    model: nn.Module,
    outcome: Outcome,
    history: History,
    session: Session,
) -> RunSummary:
    """Summarize a run."""
    trainer = params.trainer
    init = trainer.init
    data = trainer.fit.train_dataloader if trainer.fit else None
    parameters = sum(parameter.numel() for parameter in model.parameters())
    is_trained = history.timed.last is not None
    num_csx = init.backend.cluster_config.num_csx
    packing = packing_of(data.dump(), "trainer.fit.train_dataloader") if data else None
    return RunSummary(
        status="completed",
        mode=mode,
        version=VERSION,
        num_csx=num_csx,
        system=cluster.machine.system.name,
        model=ModelSummary(init.model.label(type(model).__name__), parameters),
        batch_size=data.batch_size if data else 0,
        micro_batch_size=_micro_batch_size(init, data),
        first_step=outcome.first_step,
        last_step=outcome.last_step,
        train=tuple(history.train),
        eval=tuple(history.evaluations),
        rates=tuple(history.rates),
        weights_sha256=outcome.weights_sha256,
        checkpoint=str(outcome.checkpoint) if outcome.checkpoint else None,
        measured=_measured(history) if is_trained else None,
        emulated=Emulated.of(history.timed) if is_trained else None,
        interval=_interval(history, cluster.machine, num_csx, session.execution.training),
        energy=_energy(history, cluster.machine, num_csx, session.execution.training, packing),
        start_up=session.execution.start_up,
        stragglers=dict(history.stragglers),
        link_waits=dict(history.link_waits),
        programs=tuple(session.program_reports),
        regions=_regions(
            init, cluster.runtime.engine, session.execution.training, outcome.last_step
        ),
        packing=packing if is_trained else None,
    )


def _interval(
    history: History, machine: MachineSpec, num_csx: int, training: Installation | None
) -> AnyInterval | None:
    """Return the interval of the emulated throughput; None where nothing was emulated."""
    if history.timed.last is None or training is None:
        return None
    return step_interval(machine, training.program, training.program.batch_size, num_csx)


def _energy(
    history: History,
    machine: MachineSpec,
    num_csx: int,
    training: Installation | None,
    packing: Packing | None,
) -> EnergyUse | None:
    """Return the energy of the emulated steps; None where nothing was emulated."""
    if history.timed.last is None or training is None:
        return None
    nodes = swarmx_nodes(machine.swarmx, num_csx)
    tokens: float | None = training.program.tokens_per_sample
    if tokens is not None and packing is not None:
        tokens *= packing.share
    return energy_use(machine, num_csx, nodes, history.timed, tokens)


def _measured(history: History) -> Measured:
    """Return the throughput of this host."""
    host = describe_host(torch.__version__)
    return Measured(history.samples / history.seconds, history.seconds, host)


def _micro_batch_size(init: InitConfig, data: DataLoaderConfig | None) -> int | None:
    """Return the configured samples of a micro-batch; None where the cluster chooses them."""
    size = init.micro_batch_policy("train").requested
    return closest_size(data.batch_size, size) if data and isinstance(size, int) else None


def _regions(
    init: InitConfig, engine: EngineSpec, training: Installation | None, last_step: int
) -> tuple[LayerRegion, ...]:
    """Return where the wafer computed each layer; nothing where torch computed all of them.

    Sparse weights have the densities of the last step.
    """
    if training is None or training.optimizer is None or engine.is_torch:
        return ()
    last_update = max(1, last_step + training.optimizer.earlier_updates)
    parameters = training.program.parameter
    sparsity = sparsity_by_optimizer(training.optimizer, parameters, last_update)
    precision = init.precision
    is_half = precision.enabled and precision.precision_opt_level > 0
    dtype = operand_dtype(precision.fp16_type if is_half else "float32")
    densities = sparsity.densities
    return layer_regions(engine, training.program, dtype, densities=densities, counts=True)


def log_throughput(history: History, machine: MachineSpec, summary: RunSummary) -> None:
    """Log measured and emulated throughput and energy, unless nothing was trained."""
    if history.samples:
        VENDOR_LOG.info(
            "Processed %d training sample(s) in %.2f seconds.", history.samples, history.seconds
        )
    for link, seconds in history.link_waits.items():
        if seconds > _LOGGED_SHARE * history.seconds:
            log.info("Roles waited %.2f seconds for the link %s.", seconds, link)
    if history.timed.last is not None:
        if history.timed.last.attribution.shares()["overhead"] > 0.5:
            log.info("%s", OVERHEAD_NOTE)
        log.info(prediction(machine, summary.num_csx, history.timed.last))
    if summary.packing is not None:
        log.info("%s", summary.packing.report())
    if summary.energy is not None:
        power, *parts = energy_facts(summary.energy, summary.start_up).items()
        named = "; ".join(f"{name[0].lower()}{name[1:]} {text}" for name, text in parts)
        log.info("Emulated power: %s; %s", power[1], named)


def log_places(folder: RunFolder, losses: Path, summary: RunSummary, report: Path) -> None:
    """Log where everything lies that a run has left, as one block."""
    rows = [("report", f"{report}"), ("log, summary, events", f"{folder.path}")]
    if losses.exists():
        rows.append(("losses of all runs", f"{losses}, {folder.model_dir / PICTURE_NAME}"))
    if summary.checkpoint is not None:
        rows.append(("newest checkpoint", summary.checkpoint))
    lines = [f"  {line}" for line in aligned(rows, left=(0, 1))]
    log.info("%s", "\n".join(["Where everything lies", *lines]))
