"""Models of training rows: differences from the params file of that kind of model."""

from __future__ import annotations

import pytest

from tests.support.timing.reference_rows import tiny_training_row, tiny_training_rows
from validation.families.workloads import (
    loading_of,
    micro_batch_of,
    model_of,
    sequence_length,
)
from waferstream.core.program.program import Loading


def test_model_of_takes_sizes_from_columns() -> None:
    """The feed-forward layer is four times as wide as the hidden size unless stated."""
    gpt, bert = tiny_training_rows(
        {}, {"workload": "BERT-base pre-training", "ffn": "200", "seq_len": "128"}
    )
    assert model_of(gpt)["name"] == "gpt3"
    assert model_of(gpt)["filter_size"] == 256
    assert (model_of(bert)["name"], model_of(bert)["filter_size"]) == ("bert", 200)
    assert sequence_length(bert) == 128


@pytest.mark.parametrize(
    "text",
    [
        "2048",
        "2,048",
        "2048 tokens",
        "MSL 2048",
        "2048 (MSL)",
        "not printed (2048 likely; 4096 = modelzoo default)",
    ],
)
def test_sequence_length_is_read_in_all_spellings(text: str) -> None:
    """Tables and logs write it differently; the model accepts at least that length."""
    row = tiny_training_row(seq_len=text)
    assert sequence_length(row) == 2048
    assert model_of(row)["max_position_embeddings"] == 2048


@pytest.mark.parametrize(
    ("text", "side"), [("256 latent patches (256px, patch 2x2)", 32), ("512 px", 64), ("1024", 64)]
)
def test_model_of_takes_the_size_of_images_from_the_row(text: str, side: int) -> None:
    """In pixels, eight for each latent along a side, or in patches."""
    row = tiny_training_row(workload="DiT-2B", seq_len=text)
    assert model_of(row)["vae"]["latent_size"] == [side, side]
    assert sequence_length(row) is None


def test_model_of_llama_3_shares_keys_and_values() -> None:
    """LLaMA-2 7B has keys and values for each head."""
    new, old = tiny_training_rows({"workload": "Llama-3-8B"}, {"workload": "Llama2-7B"})
    assert model_of(new)["extra_attention_params"] == {"num_kv_groups": 8}
    assert "extra_attention_params" not in model_of(old)


@pytest.mark.parametrize(
    ("workload", "name", "positions"),
    [
        ("BLOOM 7B", "bloom", "alibi"),
        ("BTLM-2.7B 8k", "btlm", "alibi"),
        ("Jais-30B", "jais", "alibi"),
        ("Mistral-7B LoRA", "mistral", "rotary"),
    ],
)
def test_model_of_has_the_changes_of_its_kind(workload: str, name: str, positions: str) -> None:
    """Several kinds share a params file."""
    section = model_of(tiny_training_row(workload=workload))
    assert (section["name"], section["position_embedding_type"]) == (name, positions)


def test_loading_of_follows_the_public_configuration() -> None:
    """BERT by eight processes that mask words, ESM-2 by one, DiT by two workers."""
    bert, esm, dit = tiny_training_rows(
        *({"workload": name} for name in ("BERT-base", "ESM-2 35M", "DiT-2B"))
    )
    assert loading_of(bert) == Loading("csv", num_workers=8, num_workers_per_csx=1)
    assert loading_of(esm) == Loading("hdf5", 0, num_workers_per_csx=1)
    assert loading_of(dit) == Loading("npz", num_workers=8, num_workers_per_csx=2)


def test_micro_batch_of_needs_the_configured_model() -> None:
    """ESM-2 35M ran in micro-batches of 64; another size, or a BERT, may differ."""
    small = {"workload": "ESM-2", "hidden": "480", "layers": "12", "heads": "20"}
    esm, other, bert = tiny_training_rows(
        small, small | {"layers": "30"}, {"workload": "BERT-base"}
    )
    assert [micro_batch_of(row) for row in (esm, other, bert)] == [64, None, None]
