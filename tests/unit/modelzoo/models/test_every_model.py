"""What holds for every model of the zoo: it trains, it compiles, it has the published size."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from modelzoo.models.example import example_inputs, training_example
from modelzoo.models.registry import MODELS, build_model, model_config
from modelzoo.models.transformer_config import TransformerConfig
from tests.support.tiny_models import SIZES, TINY_MODELS
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.precision import StreamPrecision

LLAMA = {
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "share_embedding_weights": False,
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm",
    "nonlinearity": "swiglu",
    "use_projection_bias_in_attention": False,
    "use_ffn_bias_in_attention": False,
    "use_ffn_bias": False,
}
EVERY = pytest.mark.parametrize("name", sorted(set(MODELS) - {"gpt3"}))  # gpt3 is gpt2


def tiny(name: str, dropout: float = 0.0) -> dict[str, Any]:
    residual = "residual_dropout_rate" if name == "gptj" else "dropout_rate"
    rates = dict.fromkeys((residual, "embedding_dropout_rate", "attention_dropout_rate"), dropout)
    if name == "dit":
        rates["label_dropout_rate"] = dropout
    return {"name": name, **SIZES, **TINY_MODELS[name], **rates}


def random_batch(config: TransformerConfig, size: int = 4) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)

    def draw(shape: tuple[int, ...], below: int | None) -> torch.Tensor:
        if below is None:
            return torch.randn(size, *shape, generator=generator)
        return torch.randint(below, (size, *shape), generator=generator)

    batch = {f.name: draw(f.shape, f.below) for f in config.features()}
    if "attention_mask" in batch:
        batch["attention_mask"].fill_(1)
    return batch


@EVERY
def test_it_learns_a_batch_by_heart(name: str) -> None:
    """The fp32 scalar loss falls to less than three quarters in thirty steps of Adam."""
    model = build_model(tiny(name), seed=0)
    batch = random_batch(model_config(tiny(name)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = model(**batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert loss.shape == ()
    assert loss.dtype == torch.float32
    assert losses[-1] < 0.75 * losses[0]


@EVERY
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_it_compiles_to_a_training_program(name: str, dropout: float) -> None:
    """From shapes alone, with and without dropout: every op has a kernel, every weight a gradient."""
    config = tiny(name, dropout) | {"num_hidden_layers": 1}
    example = training_example(config, micro_batch_size=3)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=3, num_micro_batches=2, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    assert compiled.program.mode == "train"
    assert set(compiled.program.trained) == {n for n, _ in example.model.named_parameters()}


def test_a_model_of_any_size_compiles_without_memory_for_its_weights() -> None:
    """One layer of a trillion-parameter GPT has 9 billion parameters, 36 GB if they existed."""
    sizes = {"hidden_size": 25600, "num_hidden_layers": 1, "num_heads": 160, "filter_size": 102400}
    example = training_example({"name": "gpt3", **sizes}, micro_batch_size=2)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=2, num_micro_batches=1, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    assert sum(spec.num_elements for spec in compiled.program.parameters) > 9e9


@EVERY
def test_example_inputs_are_those_of_its_forward(name: str) -> None:
    """Names, shapes and dtypes are what real data has; a given length replaces the default."""
    config = model_config(tiny(name))
    batch = random_batch(config, size=5)
    inputs = dict(example_inputs(config, micro_batch_size=5))
    assert inputs.keys() == batch.keys()
    for key, tensor in inputs.items():
        assert (tensor.shape, tensor.dtype) == (batch[key].shape, batch[key].dtype)
    if "input_ids" in inputs:
        shorter = dict(example_inputs(config, micro_batch_size=5, sequence_length=6))
        assert shorter["input_ids"].shape == (5, 6)


PUBLISHED_SIZES = {
    "gpt2": ({}, 124_439_808),
    "gptj": (
        {
            "vocab_size": 50400,
            "max_position_embeddings": 2048,
            "hidden_size": 4096,
            "num_hidden_layers": 28,
            "num_heads": 16,
            "filter_size": 16384,
        },
        6_050_882_784,
    ),
    "bert-base": ({}, 110_106_428),
    "bert-large": (
        {"hidden_size": 1024, "num_hidden_layers": 24, "num_heads": 16, "filter_size": 4096},
        336_226_108,
    ),
    "esm2-35m": (
        {"hidden_size": 480, "num_hidden_layers": 12, "num_heads": 20, "filter_size": 1920},
        33_501_153,
    ),
    "llama-7b": (
        LLAMA
        | {"hidden_size": 4096, "num_hidden_layers": 32, "num_heads": 32, "filter_size": 11008},
        6_738_415_616,
    ),
    "llama-70b": (
        LLAMA
        | {
            "hidden_size": 8192,
            "num_hidden_layers": 80,
            "num_heads": 64,
            "filter_size": 28672,
            "attention_module": "multiquery_attention",
            "extra_attention_params": {"num_kv_groups": 8},
        },
        68_976_648_192,
    ),
}


def count_parameters(config: dict[str, Any]) -> int:
    with torch.device("meta"):
        model = build_model(config, seed=0)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("model", PUBLISHED_SIZES)
def test_it_has_the_published_number_of_parameters(model: str) -> None:
    """Counted exactly; the numbers are those of the public checkpoints, both of BERT's heads in."""
    config, published = PUBLISHED_SIZES[model]
    assert count_parameters({"name": model.partition("-")[0], **config}) == published


def test_a_diffusion_transformer_has_the_stated_number_of_parameters() -> None:
    """Two billion: 18 H^2 per block, a third of it for the condition."""
    sizes = {"hidden_size": 2048, "num_hidden_layers": 30, "num_heads": 16, "filter_size": 8192}
    count = count_parameters({"name": "dit", **sizes})
    assert count == pytest.approx(30 * 18 * 2048**2, rel=0.01)
