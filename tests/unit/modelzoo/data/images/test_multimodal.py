"""Sequences have the images that their files name, changed as stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.errors import raises
from tests.support.models.multimodal import LENGTH, LLAVA, SIMPLE, TO_TENSORS, write_sequences
from waferstream.core.errors import ConfigError, DataError
from waferstream.workload.data import BatchSource, build_source
from waferstream.workload.models import model_config

PLACES = [[1, 2, 3, 4], [5, 6, 7, 0]]


def opened(section: dict[str, Any], **keys: Any) -> BatchSource:
    found: BatchSource = build_source({"batch_size": 6, **section, **keys}, "test")
    return found


def test_batches_are_the_inputs_of_the_models(tmp_path: Path) -> None:
    """In names, shapes and types; without shuffle in the order of the file."""
    for folder, model, keys in (
        (tmp_path / "a", LLAVA, {}),
        (tmp_path / "b", SIMPLE, {"max_num_img": 2}),
    ):
        folder.mkdir()
        section = write_sequences(folder, PLACES if keys else None) | keys
        batch = opened(section).batch(1)
        features = model_config(model).for_data(section).features()
        assert batch.keys() == {feature.name for feature in features}
        for feature in features:
            tensor = batch[feature.name]
            assert (tensor.dtype, tensor.shape) == (feature.dtype, (6, *feature.shape))
        with h5py.File(folder / "data-0.h5") as file:
            assert np.array_equal(batch["text_input_ids"], file["data"][6:, 0])
            assert np.array_equal(batch["key_padding_mask"], file["data"][6:, 3])


def test_images_are_those_that_the_file_names(tmp_path: Path) -> None:
    """In the middle of a square, scaled; the last sequence has a black one."""
    section = write_sequences(tmp_path)
    plain = [TO_TENSORS[0], {"name": "to_tensor"}]
    images = opened(section, transforms=plain, image_data_size=[3, 10, 10], num_samples=6)
    found = images.batch(0)["image_data"][2] * 255
    with Image.open(tmp_path / "images" / "2-0.png") as image:
        expected = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
    torch.testing.assert_close(found[:, 2:8], expected)
    assert found[:, 0].unique(dim=1).flatten().tolist() == [122, 116, 104]
    last = opened(section).batch(1)["image_data"][-1]
    assert not last.any()


def test_places_are_those_of_the_file(tmp_path: Path) -> None:
    """Of images that a sequence lacks they lie behind it."""
    section = write_sequences(tmp_path, PLACES)
    batch = opened(section, max_num_img=2).batch(1)
    assert batch["image_data_loc"][0].tolist() == PLACES
    assert (batch["image_data_loc"][-1] == LENGTH).all()
    assert not torch.equal(batch["image_data"][0, 0], batch["image_data"][0, 1])


def test_random_changes_are_drawn_anew_in_each_epoch(tmp_path: Path) -> None:
    section = write_sequences(tmp_path)
    flip = [*TO_TENSORS[:3], {"name": "random_horizontal_flip"}, TO_TENSORS[3]]
    some, others = (opened(section, transforms=flip) for _ in range(2))
    first = some.batch(0)["image_data"]
    assert torch.equal(first, others.batch(0)["image_data"])
    later = [some.batch(step)["image_data"] for step in (2, 4, 6)]
    assert any(not torch.equal(first, each) for each in later)


def test_mixture_finds_the_images_of_each_dataset(tmp_path: Path) -> None:
    """Numbers of sequences go on from one dataset to the next."""
    sections = []
    for name in "ab":
        (tmp_path / name).mkdir()
        sections.append(write_sequences(tmp_path / name))
    with h5py.File(tmp_path / "b" / "data-0.h5", "a") as file:
        file["img_path"][:] = file["img_path"][:][::-1]
    own, reversed_ = (opened(each, batch_size=12).batch(0) for each in sections)
    mixture = [{"data_dir": str(tmp_path / name), "weight": 1} for name in "ab"]
    keys = {"data_dir": None, "mixture": mixture, "batch_size": 24}
    mixed = opened(sections[0], **keys).batch(0)["image_data"]
    expected = torch.stack([own["image_data"], reversed_["image_data"]], dim=1).flatten(0, 1)
    assert {tuple(image.flatten().tolist()) for image in mixed} == {
        tuple(image.flatten().tolist()) for image in expected
    }
    assert torch.equal(mixed.sum(0), expected.sum(0)) or torch.allclose(
        mixed.sum(0), expected.sum(0)
    )


def change_file(folder: Path, name: str, value: Any) -> None:
    with h5py.File(folder / "data-0.h5", "a") as file:
        del file[name]
        if value is not None:
            file[name] = value


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("img_path", None, "hdf5-dataset-missing"),
        ("img_path", np.zeros((12, 2)), "image-column-wrong"),
        ("img_path", np.array([["a.png"] * 2] * 3, dtype="S"), "image-column-wrong"),
        ("img_data_loc", np.zeros((12, 1, 4), dtype=np.int32), "image-column-wrong"),
        ("img_data_loc", np.zeros((12, 2, 4)), "hdf5-dataset-not-integer"),
    ],
)
def test_wrong_columns_are_refused(name: str, value: Any, code: str, tmp_path: Path) -> None:
    section = write_sequences(tmp_path, PLACES) | {"max_num_img": 2}
    change_file(tmp_path, name, value)
    with raises(DataError, code):
        opened(section)


@pytest.mark.parametrize("name", ["/etc/passwd", "../data-0.h5", "a/../../data-0.h5"])
def test_names_that_leave_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    section = write_sequences(tmp_path)
    change_file(tmp_path, "img_path", np.array([[name]] * 12, dtype="S"))
    with raises(DataError, "image-name-outside"):
        opened(section).batch(0)


def test_wrong_images_are_refused(tmp_path: Path) -> None:
    """Of another size than stated, another number than stated, and missing ones."""
    section = write_sequences(tmp_path, PLACES)
    with raises(DataError, "image-count-mismatch"):
        opened(section)
    two = {"max_num_img": 2}
    with raises(DataError, "image-size-mismatch"):
        opened(section, **two, image_data_size=[3, 8, 9]).batch(0)
    (tmp_path / "images" / "3-1.png").unlink()
    with raises(DataError, "image-damaged"):
        opened(section, **two).batch(0)
    with pytest.raises(ConfigError):
        opened(section, **two, max_sequence_length=8)
