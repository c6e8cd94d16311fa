"""Batches of the tiny GPT with loss masks of unequal size, and training on them."""

from __future__ import annotations

from collections.abc import Callable

import torch

import cstorch
from cstorch import backends
from tests.support.programs.cstorch_program import executor, loader, running_backend
from tests.support.runs.tiny_training import LOADER, Shape, shared_compiles
from waferstream.config.params import InitConfig
from waferstream.training.setup.model import make_optimizer, make_scaler
from waferstream.training.setup.steps import training_step
from waferstream.workload.data import build_source
from waferstream.workload.models import build_model


class Masked:
    """Batches of the tiny GPT with loss masks of unequal size, one micro-batch without any.

    Without ``masks`` every token has a label.
    """

    def __init__(self, *, masks: bool = True) -> None:
        self._masks = masks
        self._source = build_source(LOADER, "test")
        self.batch_size = self._source.batch_size

    def batch(self, step: int) -> dict[str, torch.Tensor]:
        batch = dict(self._source.batch(step))
        if not self._masks:
            return batch
        generator = torch.Generator().manual_seed(step)
        mask = torch.randint(2, batch["attention_mask"].shape, generator=generator)
        mask[4:6] = 0
        return batch | {"attention_mask": mask}


def gpt_digest(
    init: InitConfig,
    num_csx: int,
    size: int = 2,
    source: Callable[[], Masked] = Masked,
    steps: int = 3,
) -> str:
    """Train on a cluster; return the digest of the weights."""
    cache = shared_compiles()
    with running_backend(Shape(num_csx, 2, 2), seed=init.seed, compile_dir=cache) as backend:
        cstorch.amp.enable_mixed_precision(init.precision.enabled)
        cstorch.amp.set_half_dtype(init.precision.fp16_type)
        backends.csx.precision.optimization_level = init.precision.precision_opt_level
        backends.csx.performance.micro_batch_size = size
        model = cstorch.compile(build_model(init.model.dump(), init.seed), backend)
        step = training_step(init, model, *make_optimizer(init, model), make_scaler(init))
        for batch in executor(steps, loader(source)):
            step(batch)
        return backend.weights_digest()
