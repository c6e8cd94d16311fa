"""Every delivered params file loads, and its data fits its model."""

from pathlib import Path

import pytest

import modelzoo
from waferstream.config.phases import load_params
from waferstream.workload.data import build_source
from waferstream.workload.models import model_config

FILES = sorted((Path(modelzoo.__file__).parent / "params").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_params_file_loads_and_its_data_fits_its_model(path: Path) -> None:
    """Its model is valid, and its data has the features of the model in the same shapes."""
    trainer = load_params(path).trainer
    config = model_config(trainer.init.model.dump())
    assert trainer.fit is not None
    loader = trainer.fit.train_dataloader.dump() | {"batch_size": 2}
    batch = build_source(loader, path.name).batch(0)
    length = batch["input_ids"].shape[1] if "input_ids" in batch else None
    assert batch.keys() == {feature.name for feature in config.features(length)}
    for feature in config.features(length):
        tensor = batch[feature.name]
        assert (tensor.dtype, tensor.shape[1:]) == (feature.dtype, feature.shape)
        if feature.below is not None:
            assert 0 <= tensor.min() <= tensor.max() < feature.below


def test_params_files_cover_every_family() -> None:
    """Named by model and size."""
    names = {path.stem.partition("_")[0] for path in FILES}
    assert names == {"gpt2", "gpt3", "gptj", "llama2", "bert", "esm2", "dit"}
