"""The smallest language models that read images, and files of sequences with images for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image

from tests.support.models.tiny_models import NO_DROPOUT, SIZES, TOKENS

LENGTH = TOKENS["max_position_embeddings"]
PATCHES = 4
IMAGE_MODEL: dict[str, Any] = {
    "name": "ViTModel",
    **SIZES,
    **NO_DROPOUT,
    "num_hidden_layers": 3,
    "nonlinearity": "quick_gelu",
    "image_size": [8, 8],
    "patch_size": [4, 4],
    "use_post_embed_layer_norm": True,
    "use_embed_proj_bias": False,
}
TEXT_MODEL: dict[str, Any] = {
    "name": "LlamaModel",
    **TOKENS,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_heads": 2,
    "filter_size": 40,
    "position_embedding_type": "rotary",
    "norm_type": "rmsnorm",
    "nonlinearity": "swiglu",
    "share_embedding_weights": False,
    "use_projection_bias_in_attention": False,
    "use_ffn_bias_in_attention": False,
    "use_ffn_bias": False,
    "embd_pdrop": 0.0,
    "dropout_rate": 0.0,
    "attention_dropout_rate": 0.0,
}
PROJECTOR: dict[str, Any] = {
    "name": "FeedForwardNetwork",
    "input_unit": 16,
    "layers_units": [24, 24],
    "layers_activation": ["gelu", None],
    "use_bias": True,
}
LLAVA: dict[str, Any] = {
    "name": "llava",
    "image_model": IMAGE_MODEL,
    "text_model": TEXT_MODEL,
    "projector": {"image_model": PROJECTOR},
    "image_feature_select_layer_idx": -2,
    "image_start_idx": 1,
}
SIMPLE: dict[str, Any] = {
    "name": "multimodal_simple",
    "image_model_list": {
        "image_models": [{"image_encoder": IMAGE_MODEL | {"image_layer_idx": -2}}],
        "global_image_projection": PROJECTOR,
    },
    "text_model": TEXT_MODEL,
}
TO_TENSORS: list[dict[str, Any]] = [
    {"name": "expand_to_square", "background_color": [122, 116, 104]},
    {"name": "resize", "size": 8, "interpolation": "bicubic"},
    {"name": "center_crop", "size": 8},
    {"name": "to_tensor"},
]


def write_sequences(folder: Path, places: list[list[int]] | None = None) -> dict[str, Any]:
    """Write twelve sequences with an image each, the last of which has none.

    Args:
        folder: An empty folder.
        places: Of each vector of each image in all sequences, (images, PATCHES); for the processor
            that reads places.

    Returns:
        The section of the data loader.
    """
    random, count = np.random.default_rng(0), 12
    images = 1 if places is None else len(places)
    (folder / "images").mkdir()
    names = [[f"{row}-{column}.png" for column in range(images)] for row in range(count)]
    names[-1] = ["None"] * images
    for name in (each for row in names[:-1] for each in row):
        pixels = random.integers(0, 256, (6, 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / name)
    tokens = random.integers(0, TOKENS["vocab_size"], (count, LENGTH + 1))
    padding = np.arange(LENGTH)[None] >= LENGTH - np.arange(count)[:, None] % 2
    text = np.arange(LENGTH)[None] > PATCHES
    rows = [tokens[:, :-1], ~padding & text, tokens[:, 1:], padding, np.zeros_like(padding)]
    with h5py.File(folder / "data-0.h5", "w") as file:
        file["data"] = np.stack(rows, axis=1).astype(np.int32)
        file["img_path"] = np.array(names, dtype="S")
        if places is not None:
            found = np.broadcast_to(np.array(places), (count, images, PATCHES)).copy()
            found[-1] = LENGTH
            file["img_data_loc"] = found
    processor = "Llava" if places is None else "MultimodalSimple"
    return {
        "data_processor": f"{processor}HDF5MapDataProcessor",
        "data_dir": str(folder),
        "img_data_dir": str(folder / "images"),
        "image_data_size": [3, 8, 8],
        "transforms": TO_TENSORS,
    }
