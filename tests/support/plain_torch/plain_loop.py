"""The weights of the plain loop for a tiny training, as a digest."""

from collections.abc import Sequence
from functools import cache, partial

import pytest

from scripts import reference_loop
from tests.support.runs.tiny_training import LOADER, Shape, init_config
from waferstream.config.params import InitConfig
from waferstream.workload.data import build_source

STEPS = 3
SHALLOW = {"num_hidden_layers": 1}
source = partial(build_source, LOADER, "test")


def by_shape(shapes: Sequence[Shape]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        "shape", shapes, ids=lambda s: f"{s.num_csx}csx-fan{s.fan_out}-{s.servers}wgt"
    )


def reference_digest(init: InitConfig, steps: int = STEPS) -> str:
    batches = (source().batch(step) for step in range(steps))
    return reference_loop.weights_sha256(reference_loop.train(init, batches, source().batch_size))


@cache
def default_reference() -> str:
    return reference_digest(init_config())
