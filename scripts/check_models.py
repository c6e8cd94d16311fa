"""Check small models of transformers, of this project, of torchvision and timm.

    python -m scripts.check_models [--families transformers zoo vision] [--only llama] [--out FILE]

Each trains two steps on two emulated systems beside plain PyTorch on the whole batch
(``cstorch.referee``), in fp32, in several micro-batches, and is then equal, close or different; or
it is refused, with the code of the error. ``vision`` needs torchvision and timm.
Exit codes: 0 if no model is different, 1 otherwise.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import cstorch
from cstorch.current import existing_backend
from cstorch.referee.report import Report
from tests.support.models.transformers_cases import BATCH_SIZE, CASES, Case
from tests.support.models.zoo_runs import NAMES, write_model
from waferstream.cli.frame.options import cluster_file
from waferstream.cli.in_process import report_of, train
from waferstream.core.errors import CheckError, WaferStreamError
from waferstream.host.files import write_json
from waferstream.reports.benchmark import new_file, new_result

STEPS = 2
MICRO_BATCH_SIZE = 2

KINDS = ("equal", "close", "different", "refused", "failed")

LossFn = Callable[[Any, torch.Tensor], torch.Tensor] | None

CLASSES = 4
PIXELS = 64

_SMALL_VIT = {"img_size": PIXELS, "patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 2}

_SMALL_MLP = {"img_size": PIXELS, "patch_size": 16, "embed_dim": 32, "num_blocks": 2}

MODELS: dict[str, dict[str, Any]] = {
    "timm.vit_tiny_patch16_224": _SMALL_VIT,
    "timm.deit_tiny_distilled_patch16_224": _SMALL_VIT,
    "timm.beit_base_patch16_224": _SMALL_VIT,
    "timm.cait_xxs24_224": {**_SMALL_VIT, "depth_token_only": 1},
    "timm.models.mlp_mixer.MlpMixer": _SMALL_MLP,
    "timm.models.convmixer.ConvMixer": {"dim": 32, "depth": 2, "kernel_size": 5},
    "timm.models.convnext.ConvNeXt": {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)},
    "timm.models.metaformer.MetaFormer": {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)},
    "timm.models.swin_transformer.SwinTransformer": {
        **{"img_size": PIXELS, "window_size": 4, "embed_dim": 16},
        **{"depths": (1, 1), "num_heads": (2, 2)},
    },
    "timm.test_byobnet": {},
    "timm.test_nfnet": {},
    "timm.resnet10t": {},
    "torchvision.models.squeezenet1_1": {},
    "torchvision.models.squeezenet1_0": {},
    "torchvision.models.resnet18": {},
    "torchvision.models.mobilenet_v3_small": {"width_mult": 0.5},
    "timm.lcnet_050": {},
    "timm.mobilenetv3_small_050": {},
    "timm.tinynet_e": {},
    "torchvision.models.mnasnet0_5": {},
    "torchvision.models.mobilenet_v2": {"width_mult": 0.25},
    "torchvision.models.shufflenet_v2_x0_5": {},
}
"""Arguments of each: a name of ``timm.create_model``, or a class or function by its path."""


@dataclass(frozen=True)
class Outcome:
    """What a check of a model has found."""

    family: str
    name: str
    outcome: str
    """``equal``, ``close``, ``different``, ``refused`` or ``failed``."""

    times: float | None
    """The farthest value of all steps, in units of what rounding alone does."""

    where: str | None
    """The origin of a difference, or the code of an error and its message."""

    duration_s: float


class WithArguments(nn.Module):
    """A model that is always called with some further arguments."""

    def __init__(self, model: nn.Module, arguments: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.arguments = model, arguments

    def forward(self, **batch: torch.Tensor) -> Any:
        """Return the outputs of the model."""
        return self.model(**batch, **self.arguments)


def check_trainer(model: nn.Module, batches: Sequence[Any], loss_fn: LossFn = None) -> Report:
    """Train a model under check; return the report."""
    cstorch.amp.enable_mixed_precision(False)
    cstorch.backends.csx.performance.micro_batch_size = MICRO_BATCH_SIZE
    cluster: Any = {"runtime": {"kind": "local"}}
    trainer = cstorch.Trainer(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        config=cstorch.CSConfig(num_csx=2, max_steps=STEPS, cluster=cluster),
        loss_fn=loss_fn,
        check=STEPS,
    )
    assert trainer.referee is not None, "it checks"
    try:
        trainer.fit(list(batches))
    except CheckError as error:
        if trainer.referee.report is None:
            raise error
    assert trainer.referee.report is not None, "the steps are done"
    return trainer.referee.report


def check_transformers(case: Case) -> Report:
    """Check a model of transformers, with its own loss."""
    model = case.model()
    if case.arguments:
        model = WithArguments(model, dict(case.arguments)).train()
    return check_trainer(model, case.batches(STEPS))


def check_vision(name: str) -> Report:
    """Check an image classifier."""
    torch.manual_seed(0)
    model = make_model(name).train()
    generator = torch.Generator().manual_seed(1)
    shape = (BATCH_SIZE, 3, PIXELS, PIXELS)
    batches = [
        (
            torch.randn(shape, generator=generator),
            torch.randint(0, CLASSES, (BATCH_SIZE,), generator=generator),
        )
        for _ in range(STEPS)
    ]
    return check_trainer(model, batches, cross_entropy)


def check_zoo(name: str) -> Report:
    """Check a model of this project, from a params file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), name, MICRO_BATCH_SIZE)
        words = ["--num_csx=2"]
        if (found := cluster_file(None, (Path(folder),))) is not None:
            words.append(f"--cluster={found}")
        run_once = partial(train, Path(folder) / "params.yaml", words, Path(folder))
        return report_of(run_once, Path(folder), STEPS, is_quiet=True)


FAMILIES: dict[str, dict[str, Callable[[], Report]]] = {
    "transformers": {case.name: partial(check_transformers, case) for case in CASES},
    "zoo": {name: partial(check_zoo, name) for name in NAMES},
    "vision": {name: partial(check_vision, name) for name in MODELS},
}


def outcome_of(family: str, name: str) -> Outcome:
    """Check a model; return what was found."""
    started_s = time.perf_counter()
    times, where = None, None
    try:
        report = FAMILIES[family][name]()
    except WaferStreamError as error:
        outcome, where = "refused", f"{error.code}: {error.what}, {error.where}"
    except Exception as error:
        outcome, where = "failed", f"{type(error).__name__}: {error}"
    else:
        outcome = report.outcome
        times = max(verdict.farthest.times for verdict in report.verdicts)
        where = report.origin.where if report.origin else None
    backend = existing_backend()
    if backend is not None:
        backend.shutdown()
    return Outcome(family, name, outcome, times, where, round(time.perf_counter() - started_s, 1))


def outcomes(families: Sequence[str], only: Sequence[str]) -> Iterator[Outcome]:
    """Yield the outcome of each model, and print it."""
    for family in families:
        for name in FAMILIES[family]:
            if not only or name in only:
                found = outcome_of(family, name)
                times = "" if found.times is None else f"{found.times:.2g}"
                print(f"{family:12} {name:40} {found.outcome:9} {times:>7}  {found.where or ''}")
                sys.stdout.flush()
                yield found


def main() -> int:
    """Check the models of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--only", nargs="+", default=[], help="names of models")
    parser.add_argument("--out", type=new_file)
    typed = parser.parse_args()
    logging.getLogger("waferstream").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    result = new_result("Do models train the weights that plain PyTorch trains?")
    found: list[Outcome] = []
    for each in outcomes(typed.families, typed.only):
        found.append(each)
        result["counts"] = {kind: sum(x.outcome == kind for x in found) for kind in KINDS}
        result["models"] = [asdict(x) for x in found]
        if typed.out is not None:
            write_json(typed.out, result)  # a run of many models may be ended early
    print(result["counts"])
    return 1 if result["counts"]["different"] else 0


def make_model(name: str) -> nn.Module:
    """Return a classifier with random weights; ImportError without its library."""
    module, _, model = name.rpartition(".")
    options = {"num_classes": CLASSES, **MODELS[name]}
    if module == "timm":
        create: Callable[..., nn.Module] = import_module(module).create_model
        return create(model, **options)
    build: Callable[..., nn.Module] = getattr(import_module(module), model)
    return build(**options)


if __name__ == "__main__":
    sys.exit(main())
