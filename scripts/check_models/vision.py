"""Small image classifiers of torchvision and timm, by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from torch import nn

CLASSES = 4
PIXELS = 64

_SMALL_VIT = {"img_size": PIXELS, "patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 2}

MODELS: dict[str, dict[str, Any]] = {
    "torchvision.mobilenet_v2": {"width_mult": 0.25},
    "torchvision.mobilenet_v3_small": {"width_mult": 0.5},
    "torchvision.shufflenet_v2_x0_5": {},
    "torchvision.squeezenet1_1": {},
    "torchvision.mnasnet0_5": {},
    "torchvision.resnet18": {"width_per_group": 64},
    "torchvision.regnet_x_400mf": {},
    "timm.vit_tiny_patch16_224": _SMALL_VIT,
    "timm.deit_tiny_distilled_patch16_224": _SMALL_VIT,
    "timm.beit_base_patch16_224": _SMALL_VIT,
    "timm.cait_xxs24_224": {**_SMALL_VIT, "depth_token_only": 1},
    "timm.mixer_s32_224": {"img_size": PIXELS, "embed_dim": 32, "num_blocks": 2},
    "timm.resmlp_12_224": {"img_size": PIXELS, "embed_dim": 32, "num_blocks": 2},
    "timm.convnext_atto": {"depths": (1, 1), "dims": (16, 32)},
    "timm.resnet10t": {},
    "timm.mobilenetv3_small_050": {},
    "timm.lcnet_050": {},
    "timm.tinynet_e": {},
    "timm.ghostnet_050": {},
    "timm.poolformer_s12": {"layers": (1, 1), "embed_dims": (16, 32), "downsamples": (False, True)},
    "timm.convmixer_768_32": {"dim": 32, "depth": 2},
    "timm.swin_tiny_patch4_window7_224": {
        **{"img_size": PIXELS, "window_size": 4, "embed_dim": 16},
        **{"depths": (1, 1), "num_heads": (2, 2)},
    },
}


def make_model(name: str) -> nn.Module:
    """Return a classifier with random weights; ImportError without its library."""
    library, _, model = name.partition(".")
    options = {"num_classes": CLASSES, **MODELS[name]}
    if library == "timm":
        create: Callable[..., nn.Module] = import_module("timm").create_model
        return create(model, **options)
    build: Callable[..., nn.Module] = getattr(import_module("torchvision.models"), model)
    return build(**options)
