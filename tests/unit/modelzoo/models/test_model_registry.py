"""A model section and a seed decide a model, whatever else happens around it."""

import pytest
import torch

from modelzoo.models.registry import build_model
from wsc.core.errors import ConfigError

SMALL = {"name": "gpt3", "vocab_size": 16, "hidden_size": 8, "num_heads": 2, "num_hidden_layers": 1}


def test_the_seed_alone_decides_the_weights() -> None:
    """Whatever happened to torch's global random state, which stays as it was."""
    torch.manual_seed(1)
    first = build_model(SMALL, seed=5).state_dict()
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = build_model(SMALL, seed=5).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(first[name], second[name]) for name in first)
    other = build_model(SMALL, seed=6).state_dict()
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])


def test_layers_do_not_shift_each_others_weights() -> None:
    """A parameter's first values depend on its name, not on what was built before it."""
    shallow = build_model(SMALL, seed=5).state_dict()
    deep = build_model(SMALL | {"num_hidden_layers": 3, "use_bias_in_output": True}, seed=5)
    name = "decoder.0.attention.query.weight"
    assert torch.equal(shallow[name], deep.state_dict()[name])


def test_a_large_model_is_described_without_memory() -> None:
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
    ("change", "what", "remedy"),
    [
        ({"name": "gtp2"}, "unknown model", "gpt2"),
        ({"name": None}, "'name' is missing", None),
        ({"hiden_size": 8}, "unknown key 'hiden_size'", "hidden_size"),
        ({"num_heads": 3}, "value of 'num_heads' is not allowed", None),
    ],
)
def test_mistakes_are_named(change: dict[str, object], what: str, remedy: str | None) -> None:
    """With the place of the section and, where one comes near, the right word."""
    with pytest.raises(ConfigError, match=what) as caught:
        build_model(SMALL | change, seed=0, where="trainer.init.model")
    assert caught.value.where == "trainer.init.model"
    if remedy:
        assert caught.value.remedy == f"did you mean {remedy!r}?"
