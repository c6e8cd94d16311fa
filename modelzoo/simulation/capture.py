"""The step of a run as a program, captured without weights, data or cluster.

Model, optimizer and step are made as for a run, on torch's meta device; the step is compiled at two
micro-batch sizes, from which all others follow. What a large model takes a minute or two for is
kept beside the compile artifacts of runs and found again by whatever decides it.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path

import torch

import cstorch
from cstorch.backend import Backend
from cstorch.trace import TracedStep
from memoryx.optim.cost import NO_UPDATE, UpdateCost, update_cost
from modelzoo.config.dataloader import DataLoaderConfig
from modelzoo.config.params import InitConfig, Params
from modelzoo.data.registry import build_source, data_processor
from modelzoo.data.source import Batch
from modelzoo.models.registry import model_config
from modelzoo.trainer.build import make_model, make_optimizer, training_step
from wsc.compiler.compiled import Compiled
from wsc.compiler.scale import CAPTURED_SIZES, ScalableProgram, capture_both
from wsc.core.errors import ConfigError, DataError
from wsc.telemetry.files import replacing
from wsc.version import VERSION

log = logging.getLogger("waferstream")

_ROOT = Path(__file__).parents[2]
_DECIDING = ("cstorch", "modelzoo/models", "modelzoo/trainer", "wsc/compiler", "wsc/core")
"""Packages whose code decides what is captured."""


@dataclass(frozen=True)
class CapturedStep:
    """A training step, and the update that follows it."""

    program: ScalableProgram
    update: UpdateCost
    clips_by_norm: bool
    tokens_per_sample: int | None
    """None for a model that does not read tokens."""


def capture_step(params: Params, backend: Backend) -> CapturedStep:
    """The training step of a run on ``backend``, from the cache if it was captured before.

    Raises ConfigError if the configuration does not train, and what compiling raises.
    """
    init, fit = params.trainer.init, params.trainer.fit
    if fit is None or init.optimizer is None:
        missing = "trainer.fit" if fit is None else "trainer.init.optimizer"
        raise ConfigError(f"simulating a training step needs {missing}", where="params file")
    batch = example_batch(init, fit.train_dataloader)
    assert backend.cache is not None, "a run has a compile_dir"
    cached = backend.cache.root / f"step_{_digest(init, batch)}.pkl"
    found = _load(cached)
    if found is not None:
        log.info("The step was captured before: %s", cached)
        return found
    log.info(
        "Capturing the step at %d and at %d samples. A large model takes a minute or two, once.",
        *CAPTURED_SIZES,
    )
    captured = _capture(init, backend, batch)
    cached.parent.mkdir(parents=True, exist_ok=True)
    with replacing(cached) as partial:
        partial.write_bytes(pickle.dumps(captured))
    return captured


def example_batch(init: InitConfig, config: DataLoaderConfig) -> Batch:
    """A few samples of the run's data; tensors as the model reads them where there is none yet."""
    samples = CAPTURED_SIZES[-1]
    section = {**config.dump(), "batch_size": samples}
    where = "trainer.fit.train_dataloader"
    data_processor(section, where)
    try:
        return build_source(section, where).batch(0)
    except (DataError, OSError) as error:
        log.info("No data to look at, so shapes are what the model reads: %s", error)
    length = section.get("max_sequence_length")
    features = model_config(init.model.dump(), "trainer.init.model").features(length)
    return {f.name: torch.zeros(samples, *f.shape, dtype=f.dtype) for f in features}


def _capture(init: InitConfig, backend: Backend, batch: Batch) -> CapturedStep:
    with torch.device("meta"):
        model = make_model(init)
    cstorch.compile(model, backend)
    step = training_step(init, model, *make_optimizer(init, model))
    assert isinstance(step, TracedStep)
    update, clips_by_norm = NO_UPDATE, False

    def capture(size: int) -> Compiled:
        nonlocal update, clips_by_norm
        compiled, optimizer = step.compiled_for(size, batch)
        if optimizer is not None:
            update = update_cost(optimizer, compiled.program.parameter)
            clips_by_norm = optimizer.max_gradient_norm is not None
        return compiled

    program = capture_both(capture)
    tokens = batch["input_ids"].shape[1] if "input_ids" in batch else None
    return CapturedStep(program, update, clips_by_norm, tokens)


def _digest(init: InitConfig, batch: Batch) -> str:
    """Names what is captured: model, precision, optimizer, shapes, and the code that captures."""
    shapes = [(name, tuple(tensor.shape[1:]), tensor.dtype) for name, tensor in batch.items()]
    sections = [init.model.dump(), init.precision.dump(), repr(init.optimizer)]
    digest = hashlib.sha256(repr((VERSION, torch.__version__, sections, shapes)).encode())
    for file in sorted(path for folder in _DECIDING for path in (_ROOT / folder).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _load(path: Path) -> CapturedStep | None:
    """What was captured; None if there is nothing, or with a warning if it is damaged."""
    if not path.exists():
        return None
    try:
        captured: CapturedStep = pickle.loads(path.read_bytes())
    except Exception as error:  # any byte may be damaged; capturing again mends it
        warnings.warn(f"{path} is damaged ({error}); capturing again", stacklevel=2)
        return None
    return captured
