"""Train two models in every precision, and on the array of PEs, and draw their losses.

    python -m benchmarks.precision --json precision.json --plot precision.png

Each arm trains the same model from the same weights on the same text, on one system of the local
cluster: ``fp32``, ``bf16``, the same with stochastic rounding, ``fp16`` with a dynamic loss scale,
``cbfloat16``; weights stream in the half type and kernels compute in it, with softmax and losses in
fp32. ``wafer`` is the default model in bf16 streams and fp32 kernels, added up in the order of the
array (runtime.engine); the arm ``torch`` beside it is the same run on torch, for the ratio of their
times. ``--arms torch wafer`` runs these two alone.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

import cstorch
from appliance.spec import ClusterSpec
from cstorch import amp, backends
from waferstream.config.params import InitConfig
from waferstream.core.config import load_yaml, validate
from waferstream.host.files import write_json
from waferstream.reports import style
from waferstream.reports.benchmark import new_file, new_result, positive
from waferstream.training.setup.model import make_model, make_optimizer, make_scaler
from waferstream.training.setup.steps import training_step
from waferstream.workload.data import build_source

_PARAMS = Path(__file__).parents[1] / "params.yaml"
_WIDER = {"hidden_size": 384, "num_hidden_layers": 6, "num_heads": 6, "filter_size": 1536}
"""Changes of the default model that give it 10.8 million parameters."""

PRECISIONS: dict[str, dict[str, Any]] = {
    "fp32": {"enabled": False},
    "bf16": {"fp16_type": "bfloat16"},
    "bf16, stochastic": {"fp16_type": "bfloat16", "stochastic_rounding": True},
    "fp16 + dynamic scale": {"fp16_type": "float16", "loss_scaling_factor": "dynamic"},
    "cbfloat16": {"fp16_type": "cbfloat16", "loss_scaling_factor": "dynamic"},
}
ENGINES = ("torch", "wafer")
ARM_NAMES = (*PRECISIONS, *ENGINES)
LOOKS: Sequence[tuple[str, Any]] = (
    (style.FAINT_INK, "-"),
    (style.BLUE, "--"),
    (style.ORANGE, "-."),
    (style.GREEN, ":"),
    (style.PURPLE, (0, (5, 1, 1, 1))),
)
"""Colour and dashes of the curves of a column, at most one for each arm of a model."""

_TITLES = {
    "default": "loss of the default model",
    "10M": "loss of 10.8 M parameters",
    "engines": "loss of the default model on both engines",
}
"""The titles of the columns of the picture."""

_MIXED = {"fp16_type": "bfloat16", "precision_opt_level": 0}


@dataclass(frozen=True)
class Arm:
    """One training run: a model, a precision, an engine (runtime.engine), and sparse weights."""

    model: str
    name: str
    precision: Mapping[str, Any]
    engine: Any = "torch"
    sparsity: Any = None


@dataclass(frozen=True)
class Curve:
    """Losses of one arm by step, and the seconds of each step but the first."""

    arm: Arm
    losses: list[float]
    seconds: list[float]


def arms(models: Sequence[str], names: Sequence[str] = ARM_NAMES) -> list[Arm]:
    """Return the arms of these names, model by model."""
    precisions = [Arm(model, *given) for model in models for given in PRECISIONS.items()]
    engines = [Arm("default", name, _MIXED, name) for name in ENGINES]
    found = [*precisions, *engines] if "default" in models else precisions
    return [arm for arm in found if arm.name in names]


def train(arm: Arm, steps: int, batch_size: int, length: int, changes: Mapping[str, Any]) -> Curve:
    """Train one arm for some steps; ``changes`` of the model's section come last."""
    trainer = load_yaml(_PARAMS)["trainer"]
    init = _init(trainer["init"], arm, {"max_position_embeddings": length, **changes})
    data = trainer["fit"]["train_dataloader"]
    section = {**data, "batch_size": batch_size, "max_sequence_length": length}
    _set_precision(init, max(1, batch_size // 2))
    backend = cstorch.backend("CSX", cluster_config=_cluster(arm.engine), seed=init.seed)
    try:
        with backend.device:
            model = make_model(init)
        compiled = cstorch.compile(model, backend)
        optimizer, schedulers = make_optimizer(init, compiled)
        step = training_step(init, compiled, optimizer, schedulers, make_scaler(init))
        loader = cstorch.utils.data.DataLoader(build_source, section, "precision")
        executor = cstorch.utils.data.DataExecutor(loader, num_steps=steps, activation_steps=1)
        losses: list[float] = []
        times = [time.perf_counter()]

        @cstorch.step_closure
        def note(loss: torch.Tensor) -> None:
            losses.append(float(loss))
            times.append(time.perf_counter())

        for batch in executor:
            note(step(batch))
        return Curve(arm, losses, [b - a for a, b in pairwise(times[1:])])
    finally:
        backend.shutdown()
        backends.reset()


def _init(section: Mapping[str, Any], arm: Arm, changes: Mapping[str, Any]) -> InitConfig:
    wider = _WIDER if arm.model == "10M" else {}
    kept = {key: section[key] for key in ("seed", "optimizer", "schedulers")}
    kept["sparsity"] = arm.sparsity
    precision = {**arm.precision, "max_gradient_norm": 1.0}
    model = {**section["model"], **wider, **changes}
    return validate(InitConfig, {**kept, "model": model, "precision": precision}, arm.name)


def _cluster(engine: Any) -> cstorch.ClusterConfig:
    sections = {"runtime": {"kind": "local", "engine": engine}}
    return cstorch.ClusterConfig(num_csx=1, cluster=validate(ClusterSpec, sections, "precision"))


def _set_precision(init: InitConfig, micro_batch_size: int) -> None:
    amp.enable_mixed_precision(init.precision.enabled)
    amp.set_half_dtype(init.precision.fp16_type)
    backends.csx.precision.optimization_level = init.precision.precision_opt_level
    backends.csx.precision.stochastic_rounding = init.precision.stochastic_rounding
    backends.csx.performance.micro_batch_size = micro_batch_size


def draw(curves: Sequence[Curve], path: Path) -> None:
    """Draw losses and what they differ by, a column for each model, and one for the engines."""
    columns: dict[str, list[Curve]] = {}
    for curve in curves:
        is_engine = curve.arm.name in ENGINES
        columns.setdefault("engines" if is_engine else curve.arm.model, []).append(curve)
    size = (5.0 * len(columns), 5.6)
    with style.picture(path, "Training loss by precision and engine", *size) as figure:
        axes = figure.subplots(2, len(columns), squeeze=False, sharex="col", height_ratios=(3, 2))
        ends = [
            (panels[1], _draw_column(panels, name, drawn))
            for panels, (name, drawn) in zip(axes.T, columns.items(), strict=True)
        ]
        figure.draw_without_rendering()
        for panel, labels in ends:
            style.label_ends(panel, labels)


def _draw_column(
    panels: Sequence[Axes], name: str, curves: Sequence[Curve]
) -> list[style.EndLabel]:
    """Draw the losses of arms above their differences from the first; return the labels below."""
    first, labels = curves[0], []
    for curve, (color, dashes) in zip(curves, LOOKS, strict=False):
        steps = range(1, len(curve.losses) + 1)
        differences = [a - b for a, b in zip(curve.losses, first.losses, strict=True)]
        for panel, values in zip(panels, (curve.losses, differences), strict=True):
            panel.plot(steps, values, color=color, linestyle=dashes)
        labels.append(style.EndLabel(differences[-1], curve.arm.name, color))
    panels[0].set_title(_TITLES[name], color=style.FAINT_INK)
    panels[1].set_title(f"minus that of {first.arm.name}", color=style.FAINT_INK)
    panels[1].set_xlabel("step")
    panels[1].xaxis.set_major_locator(MaxNLocator(integer=True))
    return labels


def main(argv: Sequence[str] | None = None) -> None:
    """Train all arms, print their last losses and times, and write what was asked for."""
    given = _parse(argv)
    logging.getLogger("waferstream").setLevel(logging.WARNING)
    result = new_result("how does the loss depend on the precision of streams and kernels?")
    changes = {"num_hidden_layers": given.layers} if given.layers else {}
    curves = []
    for arm in arms(given.models, given.arms):
        curve = train(arm, given.steps, given.batch_size, given.length, changes)
        seconds = statistics.median(curve.seconds) if curve.seconds else float("nan")
        found = f"loss {curve.losses[-1]:.4f}, {seconds:.2f} s per step"
        print(f"{arm.model:8} {arm.name:21} {found}", flush=True)
        curves.append(curve)
    if given.json:
        options = {key: value for key, value in vars(given).items() if key not in ("json", "plot")}
        rows = [{**vars(each), "arm": vars(each.arm)} for each in curves]
        write_json(given.json, {**result, "options": options, "curves": rows})
    if given.plot:
        draw(curves, given.plot)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=new_file, help="file for the result")
    parser.add_argument("--plot", type=new_file, help="file for the picture")
    parser.add_argument(
        "--models", nargs="+", default=["default", "10M"], choices=["default", "10M"]
    )
    parser.add_argument("--arms", nargs="+", default=ARM_NAMES, choices=ARM_NAMES)
    parser.add_argument("--steps", type=positive, default=8, help="steps of an arm (default: 8)")
    parser.add_argument("--batch_size", type=positive, default=4, help="samples (default: 4)")
    parser.add_argument("--length", type=positive, default=64, help="tokens of a sample")
    parser.add_argument("--layers", type=int, default=0, help="layers, if not the model's own")
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
