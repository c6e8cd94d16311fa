"""A workload counts its parts; impossible sizes and degrees are refused."""

from dataclasses import replace

import pytest

from tests.support.errors import raises
from waferstream.baselines.gpu.workload import Parallelism, Workload
from waferstream.core.errors import ConfigError

MODEL = Workload(parameters=512 + 2 * 5000, hidden=16, layers=2, heads=2, seq_len=4, vocab=16)
"""A layer of 5,000 weights and 2 x 4 x 4 scores to a sequence, each from heads of 8 elements."""


def test_workload_counts_its_parts() -> None:
    """Embeddings, heads, scores, and arithmetic by convention."""
    assert (MODEL.head_parameters, MODEL.layer_parameters, MODEL.head_size) == (256, 5000, 8)
    assert MODEL.scores_per_sequence == 2 * 2 * 4 * 4
    assert MODEL.model_flops_per_token == 6 * 10_512 + 12 * 2 * 16 * 4
    narrow = replace(MODEL, feed_forward=10)
    assert narrow.matrices == (3 * 256, 256, 160, 160)
    tied = replace(MODEL, tied_embeddings=True, learned_positions=True)
    assert tied.layer_parameters == (10_512 - 256 - 16 * 4) / 2


def test_indivisible_or_nonpositive_degrees_are_refused() -> None:
    """GPUs per copy of the model; degrees and sizes from 1."""
    with raises(ConfigError, "gpus-not-divisible"):
        Parallelism(tensor=8).data_parallel(12)
    with raises(ConfigError, "gpus-not-divisible"):
        Parallelism(tensor=4, context=2).data_parallel(12)
    with pytest.raises(ConfigError) as refused:
        Parallelism(micro_batch=0)
    assert refused.value.where == "micro_batch"
    with pytest.raises(ConfigError) as refused:
        Parallelism(optimizer_threads=-1)
    assert refused.value.where == "optimizer_threads"
    with pytest.raises(ConfigError) as refused:
        replace(MODEL, layers=0)
    assert refused.value.where == "layers"
    with raises(ConfigError, "fewer-parameters-than-embeddings"):
        replace(MODEL, parameters=500)
