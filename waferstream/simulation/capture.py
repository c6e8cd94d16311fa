"""The step of a run as a program, captured without weights, data or cluster.

Model, optimizer and step are made as for a run, on torch's meta device; the step is compiled at two
micro-batch sizes, from which all others follow, and with a few layers, from which follows a step of
many. It is kept beside the compile artifacts of runs and found again by whatever decides it.
"""

from __future__ import annotations

import hashlib
import logging
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

import cstorch
from cstorch.backend import Backend
from cstorch.trace import TracedStep
from memoryx.optim.cost import UpdateCost, clips_by_norm, update_cost
from modelzoo.data.registry import build_source, data_processor
from modelzoo.data.source import Batch
from modelzoo.models.registry import model_config, parameter_shapes
from modelzoo.models.transformer_config import TransformerConfig
from waferstream.config.params import InitConfig, Params
from waferstream.config.sections import DataLoaderConfig
from waferstream.training.build import make_model, make_optimizer, training_step
from wsc.compiler.depth import CAPTURED_LAYERS, Stack
from wsc.compiler.scale import CAPTURED_SIZES, ScalableProgram
from wsc.core.errors import ConfigError, DataError
from wsc.core.files import replacing
from wsc.core.optimizer import OptimizerSpec
from wsc.core.program import Program
from wsc.version import VERSION

log = logging.getLogger("waferstream")

_ROOT = Path(__file__).parents[2]
_DECIDING = ("cstorch", "modelzoo/models", "waferstream/training", "wsc/compiler", "wsc/core")
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
        raise ConfigError(
            f"simulating a training step needs {missing}",
            where=missing,
            value="not in the params file",
        )
    batch = example_batch(init, fit.train_dataloader)
    assert backend.cache is not None, "a run has a compile_dir"
    cached = backend.cache.root / f"step_{_digest(init, batch)}.pkl"
    found = _load(cached)
    if found is not None:
        log.info("The step was captured before: %s", cached)
        return found
    log.info(
        "Capturing the step at %d and at %d samples. A large model takes some seconds, once.",
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
    features = _config(init).features(length)
    return {f.name: torch.zeros(samples, *f.shape, dtype=f.dtype) for f in features}


def _capture(init: InitConfig, backend: Backend, batch: Batch) -> CapturedStep:
    small, large = _deepened(init, backend, batch) or _recorded(
        init, backend, batch, CAPTURED_SIZES
    )
    optimizer = small.optimizer
    return CapturedStep(
        program=ScalableProgram(small.program, large.program),
        update=update_cost(optimizer, small.program.parameter),
        clips_by_norm=clips_by_norm(optimizer),
        tokens_per_sample=batch["input_ids"].shape[1] if "input_ids" in batch else None,
    )


class _Recorded(NamedTuple):
    program: Program
    optimizer: OptimizerSpec | None


def _recorded(
    init: InitConfig, backend: Backend, batch: Batch, sizes: Sequence[int]
) -> list[_Recorded]:
    """The step at each of the micro-batch sizes."""
    with torch.device("meta"):
        model = make_model(init)
    backend.model = None  # another depth of the same model takes its place
    cstorch.compile(model, backend)
    step = training_step(init, model, *make_optimizer(init, model))
    assert isinstance(step, TracedStep)
    found = (step.compiled_for(size, batch) for size in sizes)
    return [_Recorded(compiled.program, optimizer) for compiled, optimizer in found]


def _deepened(init: InitConfig, backend: Backend, batch: Batch) -> list[_Recorded] | None:
    """The same from a model with fewer layers; None if there are few, or they are not alike."""
    num_layers = _config(init).num_hidden_layers
    if num_layers <= CAPTURED_LAYERS + 1:
        return None
    shallow = _recorded(_with_layers(init, CAPTURED_LAYERS), backend, batch, CAPTURED_SIZES)
    one_more = _with_layers(init, CAPTURED_LAYERS + 1)
    (checked,) = _recorded(one_more, backend, batch, CAPTURED_SIZES[:1])
    shapes = parameter_shapes(init.model.dump())
    stack = Stack.checked(shallow[0].program, checked.program, num_layers, shapes)
    if stack is None:
        log.info("Its layers are not alike, so all %d are captured", num_layers)
        return None
    return [_Recorded(stack.deepened(p), _trains(o, stack)) for p, o in shallow]


def _with_layers(init: InitConfig, num_layers: int) -> InitConfig:
    model = init.model.model_copy(update={"num_hidden_layers": num_layers})
    return init.model_copy(update={"model": model})


def _trains(optimizer: OptimizerSpec | None, stack: Stack) -> OptimizerSpec | None:
    """An optimizer, its groups with the weights of all layers."""
    if optimizer is None:
        return None
    groups = (replace(group, names=stack.names(group.names)) for group in optimizer.groups)
    return replace(optimizer, groups=tuple(groups))


def _config(init: InitConfig) -> TransformerConfig:
    return model_config(init.model.dump(), "trainer.init.model")


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
        log.warning("%s is damaged (%s); capturing again", path, error)
        return None
    return captured
