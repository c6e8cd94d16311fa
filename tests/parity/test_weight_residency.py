"""A node holds activations and a window of the weights, never all weights."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
import torch

from appliance import local as local_roles
from appliance.coordinator.commands import ReadPeakBytes, Run
from appliance.elaboration.elaborate import ClusterSize
from csnode.micro_batch import Kernel, MicroBatch
from tests.support.nightly import nightly
from tests.support.programs.cstorch_program import cluster_of
from tests.support.roles.arenas import StrictArena
from tests.support.roles.local_machine import (
    BF16,
    FP32,
    Regression,
    compile_model,
    installation,
    random_batches,
    sgd,
    start,
)
from tests.support.runs.tiny_training import GPT, LLAMA, Shape, init_config, train_on_cluster
from waferstream.core.program.program import ProgramKind
from waferstream.core.program.segment import Segment
from waferstream.numerics.precision import StreamPrecision

DEPTHS = (4, 32)
WIDTH = 8
SLIM = GPT | {"hidden_size": 8, "num_heads": 1, "filter_size": 8}


def peaks(depth: int) -> dict[str, dict[str, int]]:
    """Train a network of ``depth`` layers for a step; return two nodes' peak bytes by kind."""
    model, batches = Regression(WIDTH, depth), random_batches(1, rows=4, width=WIDTH)
    compiled = compile_model(model, batches[0], num_micro_batches=2)
    size = ClusterSize(num_csx=2)
    source = partial(random_batches, 1, 4, WIDTH)
    cluster = start(installation(compiled, source, sgd(model), size), model, size)
    cluster.do(Run(ProgramKind.TRAIN, 1, 1))
    return cluster.do(ReadPeakBytes())


def test_peak_weight_bytes_do_not_grow_with_depth() -> None:
    """Eight times the layers keep the peak of weights; only activations grow."""
    by_depth = [peaks(depth) for depth in DEPTHS]
    for node in ("csx-0", "csx-1"):
        shallow, *deeper = [peak[node] for peak in by_depth]
        assert all(peak["weights"] == shallow["weights"] for peak in deeper)
        assert all(peak["activations"] > 2 * shallow["activations"] for peak in deeper)


@pytest.mark.nightly
def test_peak_weight_bytes_of_gpt_do_not_grow_with_depth() -> None:
    """The same through cstorch, with tied embeddings."""

    def weights(num_layers: int) -> list[int]:
        init = init_config(SLIM | {"num_hidden_layers": num_layers})
        peak = train_on_cluster(
            init, Shape(2), 1, inspect=lambda backend: cluster_of(backend).do(ReadPeakBytes())
        )
        return [peak[node]["weights"] for node in ("csx-0", "csx-1")]

    assert weights(6) == weights(3)


@pytest.mark.parametrize("precision", [FP32, BF16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("model", [GPT, *nightly(LLAMA)], ids=["gpt", "llama"])
def test_stash_shares_no_memory_with_weights(
    model: dict[str, Any], precision: StreamPrecision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stashed activations are no views of streamed weights.

    In fp32 a cast would be no copy, so a weight that autograd saves would be the payload.
    """
    checked = []
    run = MicroBatch.run

    def run_and_look(
        self: MicroBatch, segment: Segment, kernel: Kernel, weights: Sequence[torch.Tensor]
    ) -> None:
        run(self, segment, kernel, weights)
        tensors = [*self.values.values(), *self.gradients.values()]
        held = {t.untyped_storage().data_ptr() for t in tensors if hasattr(t, "untyped_storage")}
        payloads = {weight.untyped_storage().data_ptr() for weight in weights}
        assert held.isdisjoint(payloads)
        checked.append(len(payloads))

    monkeypatch.setattr(MicroBatch, "run", run_and_look)
    settings = {"enabled": precision == BF16}
    shallow = model | {"num_hidden_layers": 1}
    train_on_cluster(init_config(shallow, precision=settings), Shape(2, servers=2), 1)
    assert sum(checked) > len(checked) // 2


@pytest.mark.parametrize("enabled", [True, *nightly(False)], ids=["bf16", "fp32"])
def test_released_weights_may_be_overwritten(
    enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Freed slabs are filled with NaN, and training ends with the same bits."""
    init = init_config(precision={"enabled": enabled})
    expected = train_on_cluster(init, Shape(2, servers=2), 2)
    monkeypatch.setattr(local_roles, "MemoryArena", StrictArena)
    assert train_on_cluster(init, Shape(2, servers=2), 2) == expected
