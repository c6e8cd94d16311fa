"""A small model whose step is captured in a second or two."""

from pathlib import Path

import pytest

from waferstream.core.config import dump_yaml


@pytest.fixture(scope="package")
def params_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the params file of two layers over made-up tokens."""
    path = tmp_path_factory.mktemp("study") / "params.yaml"
    params = {
        "trainer": {
            "init": {
                "model": {
                    "name": "gpt2",
                    "vocab_size": 64,
                    "max_position_embeddings": 16,
                    "hidden_size": 32,
                    "num_hidden_layers": 2,
                    "num_heads": 2,
                    "filter_size": 64,
                },
                "optimizer": {"SGD": {"lr": 0.1}},
                "loop": {"max_steps": 1},
                "model_dir": str(path.parent / "model_dir"),
            },
            "fit": {
                "train_dataloader": {
                    "data_processor": "DummyDataProcessor",
                    "batch_size": 16,
                    "max_sequence_length": 16,
                    "vocab_size": 64,
                }
            },
        }
    }
    path.write_text(dump_yaml(params), encoding="utf-8")
    return path
