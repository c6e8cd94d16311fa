"""Write ``run_summary.json``, ``loss.png`` and ``report.html`` of a finished run.

The libraries of pictures and pages take a second to import: a run imports this module at its end.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from appliance.elaboration.elaborate import costed_program
from appliance.spec import ClusterSpec
from waferstream.core.roles.installation import Installation
from waferstream.core.units import format_count
from waferstream.host.files import replacing, write_json
from waferstream.reports import style
from waferstream.reports.host import git_commit
from waferstream.reports.machine.use import MachineUse
from waferstream.reports.page import render
from waferstream.reports.run.history import Curves
from waferstream.reports.run.page import REPORT_NAME, Origin, run_page
from waferstream.reports.run.summary import SUMMARY_NAME, Loss, RunSummary
from waferstream.training.results.run_folder import RunFolder
from waferstream.training.results.summary import PICTURE_NAME

_SMOOTH_FROM = 100  # a curve of more steps is noisy


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
    folder.save_performance(summary)
    if not summary.train and not summary.eval:
        return
    title = title_of(summary)
    picture, whole = folder.path / PICTURE_NAME, folder.model_dir / PICTURE_NAME
    own = Curves(summary.train, tuple((step, loss) for step, loss, _ in summary.eval))
    loss_picture(picture, own.train, own.evaluation, title)
    if curves == own:
        with replacing(whole) as partial:
            shutil.copyfile(picture, partial)
    else:
        loss_picture(whole, curves.train, curves.evaluation, title)


def title_of(summary: RunSummary) -> str:
    """Return the heading of the figure of a run: model and systems."""
    parameters = format_count(summary.model.parameters)
    model = f"{summary.model.name}, {parameters} parameters"
    return f"{model}, {summary.num_csx} x {summary.system}"


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
    page = run_page(summary, curves, origin, use)
    target = folder.path / REPORT_NAME
    with replacing(target) as partial:
        partial.write_text(render(page), encoding="utf-8")
    return target


@cache
def _own_commit() -> str | None:
    """Return the commit of this program; asking git takes some milliseconds."""
    return git_commit(Path(__file__).parent)


def loss_picture(path: Path, train: Sequence[Loss], evaluation: Sequence[Loss], title: str) -> None:
    """Draw training and evaluation losses over steps, as PNG; either may be empty.

    Losses that are not finite are left out. A long training curve is drawn twice: faintly as it is,
    and smoothed.
    """
    curve = _finite(train)
    note = " (pale: each training step, dark: smoothed)" if len(curve) > _SMOOTH_FROM else ""
    with style.picture(path, title, 8.0, 4.5) as figure:
        axes = figure.add_subplot()
        axes.set_title(f"Loss{note}", color=style.FAINT_INK)
        axes.set_xlabel("step")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.margins(x=0.02)
        labels = [*_train_curve(axes, curve), *_eval_curve(axes, _finite(evaluation))]
        style.lay_out(figure)
        style.label_ends(axes, labels)


def _finite(losses: Sequence[Loss]) -> list[Loss]:
    return [(step, loss) for step, loss in losses if math.isfinite(loss)]


def _train_curve(axes: Axes, losses: Sequence[Loss]) -> list[style.EndLabel]:
    if not losses:
        return []
    steps, values = zip(*losses, strict=True)
    if len(losses) > _SMOOTH_FROM:
        axes.plot(steps, values, color=style.BLUE, alpha=0.25, linewidth=1.0)
        values = tuple(_smooth(values))
    axes.plot(steps, values, color=style.BLUE, marker="o" if len(losses) == 1 else None)
    return [style.EndLabel(values[-1], f"train {values[-1]:.3f}", style.BLUE)]


def _eval_curve(axes: Axes, losses: Sequence[Loss]) -> list[style.EndLabel]:
    if not losses:
        return []
    steps, values = zip(*losses, strict=True)
    axes.plot(
        steps,
        values,
        color=style.VERMILION,
        linewidth=1.2,
        marker="o",
        markersize=6,
        markeredgecolor="white",
    )
    return [style.EndLabel(values[-1], f"eval {values[-1]:.3f}", style.VERMILION)]


def _smooth(values: Sequence[float]) -> list[float]:
    """Return the double exponential mean, which does not lag behind a trend (Mulloy 1994)."""
    once = _exponential_mean(values)
    twice = _exponential_mean(once)
    return [2 * first - second for first, second in zip(once, twice, strict=True)]


def _exponential_mean(values: Sequence[float]) -> list[float]:
    """Return the exponential mean over a thirtieth of the values, without bias at the start."""
    keep = 1 - 30 / len(values)
    means, total, weight = [], 0.0, 0.0
    for value in values:
        total, weight = keep * total + value, keep * weight + 1
        means.append(total / weight)
    return means
