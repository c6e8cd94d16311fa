"""What holds for every model of the zoo: it trains, it compiles, it has the published size."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from modelzoo.models.example import example_inputs, training_example
from modelzoo.models.registry import MODELS, build_model, model_config
from modelzoo.models.transformer_config import TransformerConfig
from wsc.compiler.compile import CompileRequest, compile_step
from wsc.compiler.precision import StreamPrecision

NO_DROPOUT = {"dropout_rate": 0.0, "embedding_dropout_rate": 0.0, "attention_dropout_rate": 0.0}
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_heads": 2, "filter_size": 32} | NO_DROPOUT
TOKENS = {"vocab_size": 40, "max_position_embeddings": 8}
TINY_MODELS: dict[str, dict[str, Any]] = {
    "gpt2": TOKENS,
    "gpt3": TOKENS,
    "llama": TOKENS | {"norm_type": "rmsnorm", "nonlinearity": "swiglu"},
    "gptj": TOKENS | {"rotary_dim": 4},
    "bert": TOKENS | {"max_predictions_per_seq": 3, "mask_token_id": 1},
    "esm2": TOKENS,
}
LLAMA = {
    "name": "llama",
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
EVERY = pytest.mark.parametrize("name", MODELS)


def tiny(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, **TINY, **TINY_MODELS[name], **changes}


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
    config = tiny(name, **dict.fromkeys(NO_DROPOUT, dropout))
    example = training_example(config, micro_batch_size=3)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=3, num_micro_batches=2, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    assert compiled.program.mode == "train"
    assert set(compiled.program.trained) == {n for n, _ in example.model.named_parameters()}


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


@pytest.mark.parametrize(
    ("config", "published"),
    [
        pytest.param({"name": "gpt2"}, 124_439_808, id="GPT-2 small"),
        pytest.param(
            {
                "name": "bert",
                "hidden_size": 1024,
                "num_hidden_layers": 24,
                "num_heads": 16,
                "filter_size": 4096,
            },
            336_226_108,
            id="BERT-large with both heads",
        ),
        pytest.param({"name": "bert"}, 110_106_428, id="BERT-base with both heads"),
    ],
)
def test_it_has_the_published_number_of_parameters(config: dict[str, Any], published: int) -> None:
    """Counted exactly; the published numbers are those of the models' public checkpoints."""
    with torch.device("meta"):
        model = build_model(config, seed=0)
    assert sum(parameter.numel() for parameter in model.parameters()) == published
