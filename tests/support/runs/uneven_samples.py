"""Random samples for any model, five in a batch, and what a model needs for uneven ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from waferstream.workload.models import model_config

# A mean over labels and the loss of unevenly chosen experts have no weight in common.
OWN = {"mixtral": {"loss_scaling": "batch_size"}}


def random_data(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a loader of random samples, five of them in a batch."""
    inputs = {
        feature.name: {"shape": feature.shape, "high": feature.below}
        for feature in model_config(section).features()
    }
    name = "SyntheticDataProcessor"
    return {"data_processor": name, "batch_size": 5, "synthetic_inputs": inputs}
