"""Tiny runs of every model of the zoo, on uneven batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.models.model_sections import section_of
from tests.support.models.tiny_dino import DINO
from tests.support.models.tiny_models import TINY_MODELS, tiny
from tests.support.runs.tiny_run import write_run
from tests.support.runs.uneven_samples import OWN, random_data
from waferstream.workload.models import group_of_samples

NAMES = (
    *TINY_MODELS,
    *("t5", "transformer", "fc_mnist", "dpo", "llava", "multimodal_simple", "dpr", "dino"),
)


def write_model(folder: Path, name: str, size: int) -> list[str]:
    """Write a run of a small model; return its flags.

    Args:
        folder: The folder of the run.
        name: The model.
        size: Samples of a micro-batch, of five in a batch; or groups of samples, of four.
    """
    section = _section(name) | OWN.get(name, {})
    group = group_of_samples(section)
    data = random_data(section) | {"batch_size": 5 if group == 1 else 4 * group}
    flag = {"csx.performance.micro_batch_size": size * group}
    changes: dict[str, Any] = {
        "init__model": section,
        "init__callbacks": [{"ScopedTrainFlags": flag}],
        "init__precision": {"precision_opt_level": size - 1, "max_gradient_norm": 1.0},
        "fit__train_dataloader": data,
        "fit__val_dataloader": data,
    }
    return write_run(folder, **changes)


def _section(name: str) -> dict[str, Any]:
    if name == "dino":
        return DINO
    return tiny(name) if name in TINY_MODELS else section_of(name)
