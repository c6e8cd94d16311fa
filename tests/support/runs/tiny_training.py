"""A training run small enough for a test, and the clusters that it can run on.

``train_on_cluster`` does what a user's program does: it uses cstorch and all roles.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cstorch
from appliance.spec import AutoRestart, ClusterSpec
from cstorch import amp, backends
from tests.support.models.tiny_models import NO_DROPOUT, SIZES
from waferstream.config.params import InitConfig
from waferstream.core.config import validate
from waferstream.training.setup.model import make_model, make_optimizer, make_scaler
from waferstream.training.setup.steps import training_step
from waferstream.workload.data import build_source

GPT = {"name": "gpt2", **SIZES, **NO_DROPOUT, "vocab_size": 64, "max_position_embeddings": 8}
LLAMA = GPT | {
    "name": "llama",
    "share_embedding_weights": False,
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm",
    "nonlinearity": "swiglu",
    "use_ffn_bias": False,
}
# Four times as wide as the model from which muP takes its rates.
WIDE_GPT = GPT | {
    "hidden_size": 64,
    "filter_size": 128,
    "initializer_range": 0.08,
    "mup_base_hidden_size": 16,
    "mup_base_filter_size": 16,
    "output_logits_alpha": 2.0,
}
# 11 micro-batches of 2: neither a power of two nor a multiple of any number of systems.
LOADER = {
    "data_processor": "DummyDataProcessor",
    "batch_size": 22,
    "max_sequence_length": 8,
    "vocab_size": 64,
}
MICRO_BATCH_SIZE = 2
NUM_MICRO_BATCHES = 11


@dataclass(frozen=True)
class Shape:
    """A cluster: its size, where it runs, and what carries its messages."""

    num_csx: int = 1
    fan_out: int = 4
    servers: int = 1
    kind: str = "local"
    link: str = "shared_memory"
    restarts: int = 0  # failures in a row that it survives
    faults: tuple[str, ...] = ()
    verified: float = 0.0  # share of the gradients that two systems compute
    folder: Path | None = None  # of what has happened
    flash: tuple[Path, int] | None = None  # folder and resident bytes of each weight server
    has_replicas: bool = False
    engine: Any = "torch"  # what computes the kernels of nodes
    device: str = "cpu"  # where torch computes them
    fast_start: bool = True
    activation_servers: int | str = "auto"
    activation_memory: int | str = "auto"
    cores: int | str = "auto"


def init_config(model: Mapping[str, Any] = GPT, **sections: Any) -> InitConfig:
    """``trainer.init``: by default AdamW with weight decay, a schedule and clipping."""
    adamw = {"AdamW": {"weight_decay": 0.1, "betas": [0.9, 0.95]}}
    line = {"initial_learning_rate": 0.02, "end_learning_rate": 0.001, "total_iters": 8}
    data = {
        "model": model,
        "optimizer": adamw,
        "schedulers": [{"LinearLR": line}],
        "precision": {"max_gradient_norm": 0.5},
        "callbacks": [{"GlobalFlags": {"csx.performance.micro_batch_size": MICRO_BATCH_SIZE}}],
        **sections,
    }
    return validate(InitConfig, data, "test")


def cluster_config(shape: Shape, **machine: Any) -> cstorch.ClusterConfig:
    """Return the configuration of a cluster of a shape."""
    sections = {
        "runtime": {
            "kind": shape.kind,
            "link": shape.link,
            "engine": shape.engine,
            "device": shape.device,
            "fast_start": shape.fast_start,
            "cores": shape.cores,
            "activation_servers": shape.activation_servers,
            "activation_memory": shape.activation_memory,
            "verify": {"fraction": shape.verified},
            "faults": {"stated": shape.faults, "folder": shape.folder},
            "flash": shape.flash
            and dict(zip(("path", "resident_bytes"), shape.flash, strict=True)),
            "recovery": {"weight_servers": "replica" if shape.has_replicas else "replay"},
        },
        "machine": {"swarmx": {"fan_out": shape.fan_out}, **machine},
    }
    return cstorch.ClusterConfig(
        num_csx=shape.num_csx,
        max_wgt_servers=shape.servers,
        cluster=validate(ClusterSpec, sections, "test"),
        autorestart=AutoRestart(max_num_restarts=shape.restarts) if shape.restarts else None,
    )


def shared_compiles() -> Path | None:
    """Return the compile cache of all runs that need none of their own; None outside of pytest."""
    state = os.environ.get("WAFERSTREAM_STATE")
    return None if state is None else Path(state) / "compiled"


def train_on_cluster(
    init: InitConfig,
    shape: Shape,
    steps: int = 3,
    *,
    device: str = "CSX",
    restore: Path | None = None,
    save: Path | None = None,
    save_every: int | None = None,
    machine: Mapping[str, Any] | None = None,
    data: Mapping[str, Any] = LOADER,
    inspect: Callable[[cstorch.Backend], Any] = cstorch.Backend.weights_digest,
) -> Any:
    """Train for ``steps`` steps; return the result of ``inspect``, by default the weights' digest.

    The run is on ``device``, CSX or CPU. It continues from the checkpoint ``restore`` and writes one to ``save``, at the end or every
    ``save_every`` steps; ``machine`` changes sections of the emulated machine,
    and ``data`` is the section of the data loader.
    """
    _set_precision(init)
    backend = cstorch.backend(
        device,
        cluster_config=cluster_config(shape, **(machine or {})),
        compile_dir=shared_compiles(),
        seed=init.seed,
    )
    try:
        if restore is not None:
            backend.restore(restore)
        with backend.device:
            model = make_model(init)
        compiled = cstorch.compile(model, backend)
        scaler = make_scaler(init)
        if restore is not None:
            scaler.load_state_dict(cstorch.load(restore).get("grad_scaler", {}))
        step = training_step(init, compiled, *make_optimizer(init, compiled), scaler)
        loader = cstorch.utils.data.DataLoader(build_source, data, "test")
        executor = cstorch.utils.data.DataExecutor(
            loader, num_steps=steps, checkpoint_steps=(save_every or steps) if save else None
        )
        for batch in executor:
            step(batch)
            _save(save, backend, scaler)
        return inspect(backend)
    finally:
        backend.shutdown()
        backends.reset()


@cstorch.checkpoint_closure
def _save(path: Path, backend: cstorch.Backend, scaler: amp.GradScaler) -> None:
    assert backend.model is not None
    has_buffers = any(True for _ in backend.model.buffers())
    model = backend.model.state_dict() if has_buffers else {}  # weights alone need no names
    state = {"sparsity": {}, "model": model, "optimizer": {}, "global_step": backend.global_step}
    cstorch.save({**state, "grad_scaler": scaler.state_dict()}, path)


def _set_precision(init: InitConfig) -> None:
    amp.enable_mixed_precision(init.precision.enabled)
    amp.set_half_dtype(init.precision.fp16_type)
    backends.csx.precision.optimization_level = init.precision.precision_opt_level
    backends.csx.precision.stochastic_rounding = init.precision.stochastic_rounding
    backends.csx.performance.micro_batch_size = MICRO_BATCH_SIZE
