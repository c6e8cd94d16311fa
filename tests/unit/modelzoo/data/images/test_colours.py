"""Colours and sharpness change at random, by the arithmetic of Pillow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter
from pydantic import TypeAdapter

from modelzoo.data.images.colours import ImageTransform
from modelzoo.data.images.transforms import Transform
from modelzoo.data.order import draws

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 7, 3), dtype=np.uint8)
IMAGE = Image.fromarray(PIXELS)


def change(name: str, **keys: Any) -> ImageTransform:
    found: Any = TypeAdapter(Transform).validate_python({"name": name, **keys})
    assert isinstance(found, ImageTransform)
    return found


def applied(of: ImageTransform, *numbers: float) -> np.ndarray:
    """Return the changed image with these random numbers, all of which it takes."""
    left: Iterator[float] = iter(numbers)
    pixels = np.array(of.apply(IMAGE, lambda: next(left)))
    assert next(left, None) is None
    return pixels


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("brightness", ImageEnhance.Brightness),
        ("contrast", ImageEnhance.Contrast),
        ("saturation", ImageEnhance.Color),
    ],
)
def test_factors_lie_around_one(key: str, kind: Any) -> None:
    """A number of 0.75 is half way from 1 to the largest factor."""
    expected = np.array(kind(IMAGE).enhance(1.2))
    assert np.array_equal(
        applied(change("color_jitter_with_prob", **{key: 0.4}), 0.0, 0.75), expected
    )
    assert not np.array_equal(expected, PIXELS)


def test_hue_turns() -> None:
    """By a third of a circle red becomes green; without a turn only the conversion rounds."""
    red = Image.new("RGB", (2, 2), (255, 0, 0))
    jitter = change("color_jitter_with_prob", hue=0.5)
    numbers = iter((0.0, 0.5 + 1 / 3))
    turned = np.array(jitter.apply(red, lambda: next(numbers)))[0, 0]
    assert abs(turned.astype(int) - [0, 255, 0]).max() <= 8  # a hue has 256 steps
    assert abs(applied(jitter, 0.0, 0.5).astype(int) - PIXELS).max() <= 8


def test_changes_have_a_random_order() -> None:
    """The first numbers order them; then each takes its own."""
    jitter = change("color_jitter_with_prob", brightness=0.5, contrast=0.5, p=0.8)
    contrast, brightness = ImageEnhance.Contrast, ImageEnhance.Brightness
    one = contrast(brightness(IMAGE).enhance(1.5)).enhance(0.5)
    other = brightness(contrast(IMAGE).enhance(1.5)).enhance(0.5)
    assert np.array_equal(applied(jitter, 0.0, 0.1, 0.2, 1.0, 0.0), np.array(one))
    assert np.array_equal(applied(jitter, 0.0, 0.2, 0.1, 1.0, 0.0), np.array(other))
    assert np.array_equal(applied(jitter, 0.8), PIXELS)


def test_grey_blurred_and_solarized() -> None:
    """Each with its share of images."""
    for name in ("random_gray_scale", "random_grayscale"):
        grey = applied(change(name, p=0.2), 0.1)
        assert np.array_equal(grey[..., 0], np.array(IMAGE.convert("L")))
        assert np.ptp(grey, axis=-1).max() == 0
    blur = change("random_gaussian_blur_random_radius", p=0.5, radius_min=0.5, radius_max=1.5)
    expected = np.array(IMAGE.filter(ImageFilter.GaussianBlur(1.0)))
    assert np.array_equal(applied(blur, 0.4, 0.5), expected)
    solarize = change("random_solarize", threshold=128, p=0.2)
    assert np.array_equal(applied(solarize, 0.1), np.where(PIXELS < 128, PIXELS, 255 - PIXELS))
    for each in (blur, solarize, change("random_gray_scale", p=0.2)):
        assert np.array_equal(applied(each, 0.6), PIXELS)


def test_same_draws_make_the_same_image() -> None:
    jitter = change("color_jitter_with_prob", brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)
    images = [np.array(jitter.apply(IMAGE, draws(1, "image", place))) for place in (0, 0, 1)]
    assert np.array_equal(images[0], images[1])
    assert not np.array_equal(images[0], images[2])


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="radius_min"):
        change("random_gaussian_blur_random_radius", radius_min=3.0)
    with pytest.raises(ValueError, match="hue"):
        change("color_jitter_with_prob", hue=0.6)
