"""Workloads of GPU clusters, read from captured steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PretrainedConfig,
)

import cstorch
import modelzoo
from appliance.spec import ClusterSpec
from waferstream.baselines.gpu.workload import Workload
from waferstream.config.phases import load_params
from waferstream.scaling.gpu_workload import workload_of
from waferstream.simulation.capturing import captured_studies
from waferstream.simulation.program import Simulation
from waferstream.simulation.study import Study

PARAMS = Path(modelzoo.__file__).parent / "params"
SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32,
}  # fmt: skip


def workload(study: Study) -> Workload | None:
    return workload_of(study.costed(1).program)


def simulated(kind: type, config: PretrainedConfig) -> Study:
    """Return the study of a model of transformers, whose weights have no values."""
    with torch.device("meta"):
        model = kind(config)
        rows = torch.zeros(4, 32, dtype=torch.int64)
    found: Simulation = cstorch.simulate(model, {"input_ids": rows, "labels": rows})
    return found.study


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "gpt2_small",
            Workload(125_226_240, 768, 12, 12, 2048, 50_257, True, learned_positions=True),
        ),
        pytest.param(
            "bert_large",
            Workload(336_226_108, 1024, 24, 16, 128, 30_522, True, learned_positions=True),
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "esm2_35m",
            Workload(33_501_153, 480, 12, 20, 1026, 33, True),
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_model_of_the_zoo_has_the_sizes_of_its_file(name: str, expected: Workload) -> None:
    """Whether attention is fused or not, and embeddings are tied or not."""
    (study,) = captured_studies(load_params(PARAMS / f"{name}.yaml"), [ClusterSpec()], (1,))
    found = workload(study)
    assert found is not None
    assert found.layer_ops > 21
    assert replace(found, layer_ops=0) == expected


def test_a_model_of_transformers_has_the_sizes_of_its_configuration() -> None:
    found = workload(simulated(LlamaForCausalLM, LlamaConfig(**SIZES)))
    assert found is not None
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64
    parameters = 2 * 96 * 64 + 2 * layer + 64
    assert replace(found, layer_ops=0) == Workload(parameters, 64, 2, 4, 32, 96)


@pytest.mark.nightly
def test_a_mixture_of_experts_has_no_workload() -> None:
    """A token is multiplied with few of its weights, so the time of a dense model is another."""
    experts = MixtralConfig(**SIZES, num_local_experts=8, num_experts_per_tok=2)
    assert workload(simulated(MixtralForCausalLM, experts)) is None


@pytest.mark.nightly
def test_images_have_no_workload() -> None:
    (study,) = captured_studies(load_params(PARAMS / "dit_2b.yaml"), [ClusterSpec()], (1,))
    assert workload(study) is None
