"""The smallest DINO: teacher and student, a shared head of each, both losses, and images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

TRUNK: dict[str, Any] = {
    "name": "MultiImageViTModel",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_heads": 2,
    "filter_size": 32,
    "dropout_rate": 0.0,
    "embedding_dropout_rate": 0.0,
    "layer_norm_epsilon": 1e-6,
    "layerscale_value": 0.5,
    "image_size": [12, 12],
    "patch_size": [4, 4],
    "use_masked_patches": True,
    "interpolate_position_embedding": {"local_patch_dims": [2, 2]},
    "projection_initializer": {"name": "kaiming_uniform", "a": 2.2360679775},
    "cls_token_initializer": {"name": "normal", "std": 1e-6},
}
HEAD: dict[str, Any] = {
    "name": "DinoHead",
    "input_size": 16,
    "hidden_size": 24,
    "output_size": 20,
    "bottleneck_size": 8,
}
LOSS: dict[str, Any] = {
    "input_size": 20,
    "warmup_teacher_temp": 0.04,
    "teacher_temp": 0.07,
    "warmup_teacher_temp_steps": 3,
    "total_steps": 10,
    "center_momentum": 0.8,
    "teacher_temp_scheduler": "linear_cosine",
}
_VIEWS = [
    ["ssl_transform.output('global_view')", None, "ssl_transform.output('collated_masks')"],
    ["ssl_transform.output('local_view')", None, None],
]
_DECAY = {"ema_decay_start": 0.7, "ema_decay_end": 1.0, "total_steps": 5}


def average(part: str, source: int, target: int) -> dict[str, Any]:
    names = {"source": f"{part}.model({source})", "target": f"{part}.model({target})"}
    return {**names, "scheduler_name": "cosine", "scheduler_params": _DECAY}


DINO: dict[str, Any] = {
    "name": "dino",
    "image_model_trunks": [
        {
            "image_model": TRUNK,
            "forward_args": [["ssl_transform.output('global_view')", None, None]],
            "stop_grad": True,
        },
        {"image_model": TRUNK, "forward_args": _VIEWS},
    ],
    "heads": [
        {
            "head_model": HEAD,
            "forward_args": [
                ["image_model_trunks.output(0,0,1)"],
                ["image_model_trunks.output(0,0,0)"],
            ],
            "stop_grad": True,
        },
        {
            "head_model": HEAD,
            "forward_args": [
                ["image_model_trunks.output(1,0,1)"],
                ["image_model_trunks.output(1,1,1)"],
                ["image_model_trunks.output(1,0,0)"],
            ],
        },
    ],
    "losses": [
        {
            "loss": {"name": "DinoDistillationLoss", **LOSS},
            "forward_args": [["heads.output(1,0,0)", "heads.output(0,0,0)", "heads.output(1,1,0)"]],
        },
        {
            "loss": {"name": "iBOTPatchLoss", **LOSS},
            "forward_args": [
                [
                    "heads.output(0,1,0)",
                    "heads.output(1,2,0)",
                    "ssl_transform.output('collated_masks')",
                ]
            ],
        },
    ],
    "copy_init_weights": [
        {"source": "image_model_trunks.model(0)", "target": "image_model_trunks.model(1)"},
        {"source": "heads.model(0)", "target": "heads.model(1)"},
    ],
    "ema": [average("image_model_trunks", 1, 0), average("heads", 1, 0)],
    "freeze": ["image_model_trunks.model.0.*", "heads.model.0.*"],
}
SPREAD: dict[str, Any] = {
    "loss": {"name": "KoLeoLoss", "group_size": 2},
    "loss_weight": 0.1,
    "forward_args": [["image_model_trunks.output(1,0,1)"]],
}
"""A loss of the student's vectors of large crops."""
DATA: dict[str, Any] = {
    "data_processor": "DinoImageDataProcessor",
    "batch_size": 6,
    "shuffle_seed": 1,
    "ssl_transform": {
        "name": "Dinov2Transform",
        "multi_crop_transform": {
            "global_num_crops": 2,
            "local_num_crops": 3,
            "global_image_size": 12,
            "local_image_size": 8,
            "global_crops_scale": [0.32, 1],
            "local_crops_scale": [0.05, 0.32],
            "multicrop_transform_list": [
                {"name": "random_horizontal_flip", "p": 0.5},
                {
                    "name": "color_jitter_with_prob",
                    "brightness": 0.4,
                    "contrast": 0.4,
                    "saturation": 0.2,
                    "hue": 0.1,
                    "p": 0.8,
                },
                {"name": "random_gray_scale", "p": 0.2},
                {
                    "name": "random_gaussian_blur_random_radius",
                    "p": [1.0, 0.1, 0.5, 0.5, 0.5],
                    "radius_min": 0.1,
                    "radius_max": 2.0,
                },
                {"name": "random_solarize", "threshold": 128, "p": [0.0, 0.2, 0.0, 0.0, 0.0]},
                {"name": "to_tensor"},
                {"name": "normalize", "mean": [0.485, 0.456, 0.406], "std": [0.2, 0.2, 0.2]},
            ],
        },
        "masked_patch_transform": {
            "image_size": 12,
            "patch_size": 4,
            "mask_probability": 0.5,
            "mask_ratio_tuple": [0.1, 0.5],
            "min_num_patches": 1,
        },
    },
}


def write_images(folder: Path) -> dict[str, Any]:
    """Write images of random colours in ImageNet's layout; return a section that reads them."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 16, 3), dtype=np.uint8)
    for number, image in enumerate(pixels):
        place = folder / "train" / f"n{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number}.png")
    return {**DATA, "dataset": {"name": "Imagenet", "root": str(folder), "split": "train"}}
