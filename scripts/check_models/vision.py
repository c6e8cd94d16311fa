"""Small image classifiers of torchvision and timm, by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from torch import nn

CLASSES = 4
PIXELS = 64

_SMALL_VIT = {"img_size": PIXELS, "patch_size": 16, "embed_dim": 32, "depth": 2, "num_heads": 2}

_SMALL_MLP = {"img_size": PIXELS, "patch_size": 16, "embed_dim": 32, "num_blocks": 2}

MODELS: dict[str, dict[str, Any]] = {
    "timm.vit_tiny_patch16_224": _SMALL_VIT,
    "timm.deit_tiny_distilled_patch16_224": _SMALL_VIT,
    "timm.beit_base_patch16_224": _SMALL_VIT,
    "timm.cait_xxs24_224": {**_SMALL_VIT, "depth_token_only": 1},
    "timm.models.mlp_mixer.MlpMixer": _SMALL_MLP,
    "timm.models.convmixer.ConvMixer": {"dim": 32, "depth": 2, "kernel_size": 5},
    "timm.models.convnext.ConvNeXt": {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)},
    "timm.models.metaformer.MetaFormer": {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)},
    "timm.models.swin_transformer.SwinTransformer": {
        **{"img_size": PIXELS, "window_size": 4, "embed_dim": 16},
        **{"depths": (1, 1), "num_heads": (2, 2)},
    },
    "timm.test_byobnet": {},
    "timm.test_nfnet": {},
    "timm.resnet10t": {},
    "torchvision.models.squeezenet1_1": {},
    "torchvision.models.squeezenet1_0": {},
    "torchvision.models.resnet18": {},
    "torchvision.models.mobilenet_v3_small": {"width_mult": 0.5},
    "timm.lcnet_050": {},
    "timm.mobilenetv3_small_050": {},
    "timm.tinynet_e": {},
    "torchvision.models.mnasnet0_5": {},
    "torchvision.models.mobilenet_v2": {"width_mult": 0.25},
    "torchvision.models.shufflenet_v2_x0_5": {},
}
"""Arguments of each: a name of ``timm.create_model``, or a class or function by its path."""


def make_model(name: str) -> nn.Module:
    """Return a classifier with random weights; ImportError without its library."""
    module, _, model = name.rpartition(".")
    options = {"num_classes": CLASSES, **MODELS[name]}
    if module == "timm":
        create: Callable[..., nn.Module] = import_module(module).create_model
        return create(model, **options)
    build: Callable[..., nn.Module] = getattr(import_module(module), model)
    return build(**options)
