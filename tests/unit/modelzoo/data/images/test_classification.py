"""Images are changed anew in each epoch; every batch is a function of seed and step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.support.errors import raises
from waferstream.core.errors import ConfigError, DataError
from waferstream.workload.data import BatchSource, build_source

TO_TENSOR = {"name": "to_tensor"}
RAMP = np.arange(8 * 6, dtype=np.uint8).reshape(8, 6)


def write_images(folder: Path, mode: str = "RGB") -> None:
    """Two classes with three images each: a ramp of 8 x 6 pixels, in another colour each."""
    for label, name in enumerate(("n01", "n02")):
        (folder / "train" / name).mkdir(parents=True)
        for number in range(3):
            pixels = np.zeros((8, 6, 3), dtype=np.uint8)
            pixels[..., number] = RAMP + 100 * label
            image = Image.fromarray(pixels).convert(mode)
            image.save(folder / "train" / name / f"{number}.PNG")


def source(folder: Path, *transforms: dict[str, Any], **keys: Any) -> BatchSource:
    section = {
        "data_processor": "ImageNet1KProcessor",
        "data_dir": str(folder),
        "batch_size": 3,
        "shuffle": False,
        "transforms": transforms,
    }
    found: BatchSource = build_source(section | keys, "x")
    return found


def test_images_become_numbers_by_class(tmp_path: Path) -> None:
    """From 0 to 1 for each channel, then normalized."""
    write_images(tmp_path)
    normalize = {"name": "normalize", "mean": [0.5, 0.25, 0.0], "std": [0.5, 1.0, 2.0]}
    batches = [source(tmp_path, TO_TENSOR, normalize).batch(step) for step in range(2)]
    assert [batch["labels"].tolist() for batch in batches] == [[0] * 3, [1] * 3]
    images = batches[0]["images"]
    assert (images.dtype, images.shape) == (torch.float32, (3, 3, 8, 6))
    pixels = torch.from_numpy(RAMP).float() / 255
    assert torch.equal(images[0, 0], (pixels - 0.5) / 0.5)
    assert torch.equal(images[1, 1], pixels - 0.25)
    assert torch.equal(images[2, 2], pixels / 2)


@pytest.mark.parametrize(("size", "shape"), [([4, 9], (4, 9)), (3, (4, 3)), ([16, 12], (16, 12))])
def test_resize_scales_to_height_and_width(
    size: Any, shape: tuple[int, int], tmp_path: Path
) -> None:
    """One number is that of the shorter side; the mean colour stays."""
    write_images(tmp_path)
    resize = {"name": "resize", "size": size}
    image = source(tmp_path, resize, TO_TENSOR).batch(0)["images"][0, 0]
    assert image.shape == shape
    assert float(image.mean() * 255) == pytest.approx(RAMP.mean(), abs=0.5)


@pytest.mark.parametrize(
    ("size", "rows", "columns"), [([4, 2], slice(2, 6), slice(2, 4)), (5, slice(2, 7), slice(0, 5))]
)
def test_crop_of_the_middle(size: Any, rows: slice, columns: slice, tmp_path: Path) -> None:
    """Halves of odd numbers are rounded to even ones, as torchvision does."""
    write_images(tmp_path)
    crop = {"name": "center_crop", "size": size}
    image = source(tmp_path, crop, TO_TENSOR).batch(0)["images"][0, 0]
    torch.testing.assert_close(image * 255, torch.from_numpy(RAMP[rows, columns]).float())


def test_crop_of_the_middle_adds_black_pixels(tmp_path: Path) -> None:
    write_images(tmp_path)
    crop = {"name": "center_crop", "size": [11, 9]}
    image = source(tmp_path, crop, TO_TENSOR).batch(0)["images"][0, 0] * 255
    torch.testing.assert_close(image[1:9, 1:7], torch.from_numpy(RAMP).float())
    assert image.sum() == image[1:9, 1:7].sum()


def test_square_has_the_image_in_its_middle(tmp_path: Path) -> None:
    """Eight pixels down and six across become eight across, with a column on each side."""
    write_images(tmp_path)
    expand = {"name": "expand_to_square", "background_color": [9, 8, 7]}
    image = source(tmp_path, expand, TO_TENSOR).batch(0)["images"][0] * 255
    torch.testing.assert_close(image[0, :, 1:7], torch.from_numpy(RAMP).float())
    sides = image[:, :, [0, 7]].flatten(1).unique(dim=1)
    assert sides.flatten().tolist() == [9, 8, 7]


def test_flips_are_drawn_anew_in_each_epoch(tmp_path: Path) -> None:
    """Half of all, by the seed and the place in the stream of samples."""
    write_images(tmp_path)
    flip = {"name": "random_horizontal_flip"}
    flips = source(tmp_path, flip, TO_TENSOR)
    plain = source(tmp_path, TO_TENSOR)
    is_flipped = []
    for step in range(40):
        images, others = flips.batch(step)["images"], plain.batch(step)["images"]
        for image, other in zip(images, others, strict=True):
            assert torch.equal(image, other) or torch.equal(image, other.flip(2))
            is_flipped.append(not torch.equal(image, other))
    assert 0.35 < np.mean(is_flipped) < 0.65
    assert torch.equal(
        source(tmp_path, flip, TO_TENSOR).batch(7)["images"], flips.batch(7)["images"]
    )
    seeds = [source(tmp_path, flip, TO_TENSOR, shuffle_seed=s) for s in (1, 2)]
    assert any(
        not torch.equal(seeds[0].batch(s)["images"], seeds[1].batch(s)["images"]) for s in range(8)
    )


def test_random_crops_have_the_stated_shares(tmp_path: Path) -> None:
    """A box of one ramp spans as many values as pixels across, and rows of them down."""
    (tmp_path / "train" / "n01").mkdir(parents=True)
    columns, rows = np.meshgrid(np.arange(200), np.arange(100))
    pixels = np.stack([columns, rows, rows], axis=-1).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "train" / "n01" / "0.png")
    crop = {"name": "random_resized_crop", "size": [50, 50], "scale": [0.1, 0.5], "ratio": [1, 2]}
    boxes = source(tmp_path, crop | {"interpolation": "nearest"}, TO_TENSOR, batch_size=1)
    shares, ratios, lefts = [], [], []
    for step in range(100):
        image = boxes.batch(step)["images"][0] * 255
        across, down = (float(image[c].max() - image[c].min()) for c in (0, 1))
        shares.append(across * down / 20000)
        ratios.append(across / down)
        lefts.append(float(image[0].min()))
    assert 0.08 < min(shares) < 0.16
    assert 0.42 < max(shares) < 0.52
    assert 0.9 < min(ratios) < 1.15
    assert 1.75 < max(ratios) < 2.15
    assert min(lefts) < 15
    assert max(lefts) > 80


def test_box_in_the_middle_where_none_fits(tmp_path: Path) -> None:
    """As large as the ratios allow."""
    write_images(tmp_path)
    crop = {"name": "random_resized_crop", "size": [2, 6], "scale": [1, 1], "ratio": [3, 3]}
    image = source(tmp_path, crop, TO_TENSOR).batch(0)["images"][0, 0]
    torch.testing.assert_close(image * 255, torch.from_numpy(RAMP[3:5]).float())


def test_noaugment_scales_only(tmp_path: Path) -> None:
    write_images(tmp_path, mode="L")
    flip = {"name": "random_horizontal_flip", "p": 1}
    found = source(tmp_path, flip, TO_TENSOR, noaugment=True, image_size=[4, 3]).batch(0)
    expected = source(tmp_path, {"name": "resize", "size": [4, 3]}, TO_TENSOR).batch(0)
    assert torch.equal(found["images"], expected["images"])
    assert len(expected["images"].unique()) > 4


@pytest.mark.parametrize(
    "names", [[], ["to_tensor", "to_tensor"], ["to_tensor", "random_horizontal_flip"], ["blur"]]
)
def test_wrong_transforms_are_refused(names: list[str], tmp_path: Path) -> None:
    """Without one change to tensors, one of images after it, an unknown one."""
    with pytest.raises(ConfigError) as caught:
        source(tmp_path, *({"name": name} for name in names))
    assert "transforms" in caught.value.what


def test_wrong_images_are_refused(tmp_path: Path) -> None:
    """No split, a damaged file, and several sizes in a batch."""
    write_images(tmp_path)
    with raises(DataError, "data-file-not-found"):
        source(tmp_path, TO_TENSOR, split="val")
    first = tmp_path / "train" / "n01" / "0.PNG"
    Image.new("RGB", (3, 3)).save(first)
    with raises(DataError, "image-sizes-differ"):
        source(tmp_path, TO_TENSOR).batch(0)
    first.write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 40)
    with raises(DataError, "image-damaged"):
        source(tmp_path, TO_TENSOR).batch(0)


def test_narrow_image_does_not_fill_the_memory(tmp_path: Path) -> None:
    """One pixel by many, scaled to 256 by as many times more."""
    first = tmp_path / "train" / "n01" / "0.PNG"
    first.parent.mkdir(parents=True)
    Image.new("RGB", (1, 60_000)).save(first)
    black = {"background_color": [0, 0, 0]}
    for change, size in (
        ({"name": "resize", "size": 256}, "256 x 15360000"),
        ({"name": "expand_to_square", **black}, "60000 x 60000"),
    ):
        with raises(DataError, "image-not-changed") as caught:
            source(tmp_path, change, TO_TENSOR, batch_size=1).batch(0)
        assert caught.value.where == str(first)
        assert size in str(caught.value.value)
