"""Every model: it trains, compiles, and has the published size."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.errors import raises
from tests.support.models.tiny_models import TINY_MODELS, tiny
from tests.support.nightly import nightly
from tests.support.timing.op_costs import check_costs
from waferstream.compiler.compile import CompileRequest, compile_step
from waferstream.core.errors import ConfigError
from waferstream.numerics.precision import StreamPrecision
from waferstream.workload.model_config import ModelConfig
from waferstream.workload.models import (
    build_model,
    example_inputs,
    model_config,
    training_example,
)

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
EVERY = pytest.mark.parametrize("name", sorted(TINY_MODELS))  # other names share a class
DISTINCT = ("bert", "dit", "gpt2", "llama", "mixtral", "vision_transformer")
"""Models with ops or blocks of their own."""


def random_batch(config: ModelConfig, size: int = 4) -> dict[str, torch.Tensor]:
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
def test_model_overfits_one_batch(name: str) -> None:
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


@pytest.mark.parametrize("name", [*DISTINCT, *nightly(*sorted(TINY_MODELS.keys() - set(DISTINCT)))])
@pytest.mark.parametrize("dropout", [*nightly(0.0), 0.1])
def test_training_example_compiles(name: str, dropout: float) -> None:
    """From shapes alone: every op has a kernel and costs cycles, every weight has a gradient."""
    config = tiny(name, dropout) | {"num_hidden_layers": 1}
    example = training_example(config, micro_batch_size=3)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=3, num_micro_batches=2, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    assert compiled.program.kind == "train"
    assert set(compiled.program.trained) == {n for n, _ in example.model.named_parameters()}
    check_costs(compiled.program)


def test_training_example_of_a_large_model_takes_no_memory() -> None:
    """One layer of a trillion-parameter GPT has 9 billion parameters, 36 GB if they existed."""
    sizes = {"hidden_size": 25600, "num_hidden_layers": 1, "num_heads": 160, "filter_size": 102400}
    example = training_example({"name": "gpt3", **sizes}, micro_batch_size=2)
    request = CompileRequest(
        StreamPrecision(), micro_batch_size=2, num_micro_batches=1, target="test"
    )
    compiled, _ = compile_step(example.step, example.model, example.inputs, request)
    assert sum(spec.num_elements for spec in compiled.program.parameters) > 9e9


@EVERY
def test_example_inputs_match_the_features(name: str) -> None:
    """Names, shapes and dtypes of real data; a given length replaces the default."""
    config = model_config(tiny(name))
    batch = random_batch(config, size=5)
    inputs = dict(example_inputs(config, micro_batch_size=5))
    assert inputs.keys() == batch.keys()
    for key, tensor in inputs.items():
        assert (tensor.shape, tensor.dtype) == (batch[key].shape, batch[key].dtype)
    if "input_ids" in inputs:
        shorter = dict(example_inputs(config, micro_batch_size=5, sequence_length=6))
        assert shorter["input_ids"].shape == (5, 6)


PUBLISHED_SIZES: dict[str, tuple[dict[str, Any], int]] = {
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
    "vision_transformer-base": (
        {"image_size": (224, 224), "patch_size": (16, 16), "num_classes": 1000},
        86_567_656,
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
def test_model_has_the_published_number_of_parameters(model: str) -> None:
    """Exactly those of the public checkpoints, including both heads of BERT."""
    config, published = PUBLISHED_SIZES[model]
    assert count_parameters({"name": model.partition("-")[0], **config}) == published


def test_dit_has_the_stated_number_of_parameters() -> None:
    """Two billion: 18 H^2 per block, a third of it for the condition."""
    sizes = {"hidden_size": 2048, "num_hidden_layers": 30, "num_heads": 16, "filter_size": 8192}
    count = count_parameters({"name": "dit", **sizes})
    assert count == pytest.approx(30 * 18 * 2048**2, rel=0.01)


SMALL = {"name": "gpt3", "vocab_size": 16, "hidden_size": 8, "num_heads": 2, "num_hidden_layers": 1}


@pytest.mark.parametrize("size", [2**40, 10**30])
def test_model_beyond_the_sizes_of_torch_is_refused(size: int) -> None:
    with raises(ConfigError, "model-too-large") as caught:
        build_model(
            SMALL | {"hidden_size": size, "num_heads": 1}, seed=0, where="trainer.init.model"
        )
    assert caught.value.where == "trainer.init.model"
    assert "\n" not in str(caught.value.value)


def test_build_model_depends_on_the_seed_alone() -> None:
    """The global random state of torch neither matters nor changes."""
    torch.manual_seed(1)
    first = build_model(SMALL, seed=5).state_dict()
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = build_model(SMALL, seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = build_model(SMALL, seed=6).state_dict()
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


def test_initial_weights_depend_on_their_names() -> None:
    """Not on the parameters built before."""
    shallow = build_model(SMALL, seed=5).state_dict()
    deep = build_model(SMALL | {"num_hidden_layers": 3, "use_bias_in_output": True}, seed=5)
    name = "decoder.0.attention.query.weight"
    assert torch.equal(shallow[name], deep.state_dict()[name])


def test_build_model_on_meta_takes_no_memory() -> None:
    """175 billion parameters on the meta device."""
    with torch.device("meta"):
        model = build_model(
            {
                "name": "gpt3",
                "hidden_size": 12288,
                "num_hidden_layers": 96,
                "num_heads": 96,
                "filter_size": 49152,
                "max_position_embeddings": 2048,
            },
            seed=0,
        )
    parameters = list(model.parameters())
    assert all(parameter.is_meta for parameter in parameters)
    assert 174e9 < sum(parameter.numel() for parameter in parameters) < 176e9


@pytest.mark.parametrize(
    ("change", "code", "remedy"),
    [
        ({"name": "gtp2"}, "unknown-model", "did you mean 'gpt2'?"),
        ({"name": None}, "model-name-missing", None),
    ],
)
def test_wrong_model_name_is_refused(
    change: dict[str, object], code: str, remedy: str | None
) -> None:
    """With the place of the section and the nearest known name."""
    with raises(ConfigError, code) as caught:
        build_model(SMALL | change, seed=0, where="trainer.init.model")
    assert caught.value.where == "trainer.init.model"
    assert caught.value.remedy == remedy


@pytest.mark.parametrize(
    ("change", "key"), [({"hiden_size": 8}, "hiden_size"), ({"num_heads": 3}, "num_heads")]
)
def test_wrong_model_key_is_refused(change: dict[str, object], key: str) -> None:
    """An unknown key, and a value that breaks a rule."""
    with pytest.raises(ConfigError) as caught:
        build_model(SMALL | change, seed=0, where="trainer.init.model")
    assert f"'{key}'" in caught.value.what
    assert caught.value.where == "trainer.init.model"
