"""Write ``run_summary.json`` and ``loss.png`` of a finished run, and the losses of all runs."""

from __future__ import annotations

import logging
import shutil
from functools import cache
from pathlib import Path

import torch
from torch import nn

from appliance.elaborate import costed_program
from appliance.spec import ClusterSpec
from simulator.cluster_timing import prediction
from timing.attribution import OVERHEAD_NOTE
from timing.hardware import MachineSpec
from timing.start_up import StartUp
from waferstream.config.params import Params
from waferstream.reports.history import Curves
from waferstream.reports.host import describe_host, git_commit
from waferstream.reports.loss_picture import loss_picture
from waferstream.reports.machine_use import MachineUse
from waferstream.reports.page import render
from waferstream.reports.run_page import REPORT_NAME, Origin, run_page
from waferstream.reports.summary import SUMMARY_NAME, Emulated, Measured, ModelSummary, RunSummary
from waferstream.training.history import History
from waferstream.training.run_folder import RunFolder
from waferstream.training.trainer import Outcome
from wsc.core.files import replacing, write_json
from wsc.core.installation import Installation
from wsc.core.micro_batches import closest_size
from wsc.core.units import aligned
from wsc.version import VERSION

log = logging.getLogger("waferstream")

PICTURE_NAME = "loss.png"


def write_results(folder: RunFolder, summary: RunSummary, curves: Curves) -> None:
    """Write summary and figure of a run to its folder, and the figure of all runs to the model's.

    No figure is written where no loss was recorded.

    Args:
        folder: The folder of the run.
        summary: The run.
        curves: The losses of all runs of the model.
    """
    write_json(folder.path / SUMMARY_NAME, summary.to_json())
    folder.point_to(SUMMARY_NAME)
    if not summary.train and not summary.eval:
        return
    title = (
        f"{summary.model.name}, {summary.model.parameters / 1e6:.1f} M parameters, "
        f"{summary.num_csx} x {summary.system}"
    )
    picture, whole = folder.path / PICTURE_NAME, folder.model_dir / PICTURE_NAME
    own = Curves(summary.train, tuple((step, loss) for step, loss, _ in summary.eval))
    loss_picture(picture, own.train, own.evaluation, title)
    if curves == own:
        with replacing(whole) as partial:
            shutil.copyfile(picture, partial)
    else:
        loss_picture(whole, curves.train, curves.evaluation, title)


def write_report(
    folder: RunFolder,
    summary: RunSummary,
    curves: Curves,
    cluster: ClusterSpec,
    training: Installation | None,
    command: str,
) -> Path:
    """Write the page of a run to its folder, and return its path.

    Args:
        folder: The folder of the run.
        summary: The run.
        curves: The losses of all runs of the model.
        cluster: The machine.
        training: The program that was trained; None where none was.
        command: The command line.
    """
    use = None
    if training is not None and summary.emulated is not None:
        costed = costed_program(training, cluster.machine)
        step_ps = summary.emulated.step_ps
        use = MachineUse.of(costed, cluster.machine, summary.num_csx, step_ps)
    origin = Origin(
        name=folder.path.name,
        command=command,
        commit=_own_commit(),
        params=(folder.path / "trainer_params.yaml").read_text(encoding="utf-8"),
        cluster=(folder.path / "cluster.yaml").read_text(encoding="utf-8"),
    )
    published = MachineSpec.model_validate({"system": summary.system})
    page = run_page(summary, curves, origin, use, cluster.machine == published)
    target = folder.path / REPORT_NAME
    with replacing(target) as partial:
        partial.write_text(render(page), encoding="utf-8")
    return target


@cache
def _own_commit() -> str | None:
    """Return the commit of this program; asking git takes some milliseconds."""
    return git_commit(Path(__file__).parent)


def summarize(
    params: Params,
    cluster: ClusterSpec,
    mode: str,
    model: nn.Module,
    outcome: Outcome,
    history: History,
    start_up: StartUp | None,
) -> RunSummary:
    """Summarize a run."""
    trainer = params.trainer
    init = trainer.init
    data = trainer.fit.train_dataloader if trainer.fit else None
    size = init.micro_batch_policy("train").requested
    parameters = sum(parameter.numel() for parameter in model.parameters())
    measured = emulated = None
    if history.timings:
        host = describe_host(torch.__version__)
        measured = Measured(history.samples / history.seconds, history.seconds, host)
        emulated = Emulated.of(history.timings)
    return RunSummary(
        status="completed",
        mode=mode,
        version=VERSION,
        num_csx=init.backend.cluster_config.num_csx,
        system=cluster.machine.system.name,
        model=ModelSummary(init.model.label, parameters),
        batch_size=data.batch_size if data else 0,
        micro_batch_size=closest_size(data.batch_size, size)
        if data and isinstance(size, int)
        else None,
        first_step=outcome.first_step,
        last_step=outcome.last_step,
        train=tuple(history.train),
        eval=tuple(history.evaluations),
        rates=tuple(history.rates),
        weights_sha256=outcome.weights_sha256,
        checkpoint=str(outcome.checkpoint) if outcome.checkpoint else None,
        measured=measured,
        emulated=emulated,
        start_up=start_up,
        stragglers=dict(history.stragglers),
    )


def log_throughput(history: History, machine: MachineSpec, num_csx: int) -> None:
    """Log measured and emulated throughput, unless nothing was trained."""
    if history.samples:
        log.info(
            "Processed %d training sample(s) in %.2f seconds.", history.samples, history.seconds
        )
    if history.timings:
        if history.timings[-1].attribution.shares()["overhead"] > 0.5:
            log.info("%s", OVERHEAD_NOTE)
        log.info(prediction(machine, num_csx, history.timings[-1]))


def log_places(folder: RunFolder, losses: Path, summary: RunSummary, report: Path) -> None:
    """Log where everything lies that a run has left, as one block."""
    rows = [("report", f"{report}"), ("log, summary, events", f"{folder.path}")]
    if losses.exists():
        rows.append(("losses of all runs", f"{losses}, {folder.model_dir / PICTURE_NAME}"))
    if summary.checkpoint is not None:
        rows.append(("newest checkpoint", summary.checkpoint))
    log.info("%s", "\n".join(["Where everything lies", *(f"  {line}" for line in aligned(rows))]))
