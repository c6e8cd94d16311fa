"""The training of a chaos run: a tiny GPT on two systems, with every kind of role."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from waferstream.core.roles.names import (
    COORDINATOR,
    node_name,
    server_name,
    switch_name,
    worker_name,
)

NUM_CSX = 2
NUM_SERVERS = 2
ROLES = (
    *map(server_name, range(NUM_SERVERS)),
    switch_name(0),
    *map(node_name, range(NUM_CSX)),
    worker_name(0),
    COORDINATOR,
)

_MODEL = {
    "name": "gpt2",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_heads": 2,
    "filter_size": 64,
    "vocab_size": 256,
    "max_position_embeddings": 16,
}


@dataclass(frozen=True)
class Workload:
    """One training and the faults that happen to its roles."""

    steps: int
    steps_per_job: int = 5
    steps_per_checkpoint: int = 20
    num_restarts: int = 0
    """Restarts that a run may do by itself; after the last one it ends, and is started again."""

    def write(self, folder: Path, kind: str, faults: dict[str, Any]) -> list[str]:
        """Write params and cluster files; return the flags of run.py.

        Args:
            folder: Where the files and the model_dir are; beside it is the compile cache, which
                the trainings with and without faults share.
            kind: ``ray``, or ``local`` for the training without faults.
            faults: ``runtime.faults`` of cluster.yaml.
        """
        folder.mkdir(parents=True, exist_ok=True)
        runtime = {
            "kind": kind,
            "faults": faults,
            # Steps take a fraction of a second, so nothing has to wait for long.
            "stall_timeout_s": 10.0,
            "heartbeat_timeout_s": 3.0,
        }
        cluster = {"runtime": runtime, "machine": {"swarmx": {"fan_out": 2}}}
        (folder / "params.yaml").write_text(yaml.safe_dump(self._params()))
        (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster))
        return [
            f"--params={folder / 'params.yaml'}",
            f"--cluster={folder / 'cluster.yaml'}",
            f"--model_dir={folder / 'model_dir'}",
            f"--compile_dir={folder.parent / 'compiled'}",
            f"--num_csx={NUM_CSX}",
            "--log=vendor",
            f"--num_wgt_servers={NUM_SERVERS}",
        ]

    def _params(self) -> dict[str, Any]:
        init: dict[str, Any] = {
            "model": _MODEL | {"dropout_rate": 0.1, "attention_dropout_rate": 0.1},
            "optimizer": {"AdamW": {"lr": 0.001, "weight_decay": 0.1}},
            "precision": {"max_gradient_norm": 1.0},
            "loop": {"max_steps": self.steps},
            "checkpoint": {"steps": self.steps_per_checkpoint},
            "logging": {"log_steps": self.steps_per_job},
        }
        restarts = {"max_num_restarts": self.num_restarts} if self.num_restarts else None
        init["autorestart"] = restarts
        loader = {
            "data_processor": "DummyDataProcessor",
            "batch_size": 16,
            "max_sequence_length": 16,
            "vocab_size": 256,
        }
        return {"trainer": {"init": init, "fit": {"train_dataloader": loader}}}
