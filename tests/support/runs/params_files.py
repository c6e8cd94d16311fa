"""A small params.yaml: its trainer section, and the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

NUM_CSX = ("init", "backend", "cluster_config", "num_csx")
LOADER = {"data_processor": "Dummy", "batch_size": 8}


def written(folder: Path, trainer: Any) -> Path:
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump({"trainer": trainer}))
    return path


def trainer(**init: Any) -> dict[str, Any]:
    return {"init": {"model": {"name": "gpt3"}, **init}, "fit": {"train_dataloader": LOADER}}
