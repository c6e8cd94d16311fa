"""Every family trains on micro-batches of two samples and one as in a plain loop, with dropout."""

from __future__ import annotations

import pytest

from scripts import reference_loop
from tests.support.models.tiny_models import TINY_MODELS, tiny
from tests.support.plain_torch.keyed_draws import KeyedDraws
from tests.support.runs.tiny_training import Shape, init_config, train_on_cluster
from tests.support.runs.uneven_samples import OWN, random_data
from waferstream.workload.data import build_source


@pytest.mark.nightly
@pytest.mark.parametrize("in_half", [False, True])
@pytest.mark.parametrize("name", sorted(TINY_MODELS))
def test_weights_equal_those_of_the_loop(
    name: str, in_half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit on three systems, with clipping."""
    monkeypatch.setattr(reference_loop, "refuse_dropout", lambda _: None)
    monkeypatch.setattr(
        reference_loop,
        "rounding",
        lambda init, _, step, micro_batch: KeyedDraws(micro_batch, step, init.seed),
    )
    section = {**tiny(name, dropout=0.2), **OWN.get(name, {})}
    precision = {"enabled": in_half, "max_gradient_norm": 0.5}
    init, data = init_config(section, precision=precision), random_data(section)
    batches = map(build_source(data, "test").batch, range(2))
    expected = reference_loop.weights_sha256(reference_loop.train(init, batches, 5))
    assert train_on_cluster(init, Shape(3), 2, data=data) == expected
