"""Cases of the modules of torch.nn, losses included."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.support.plain_torch.torch_cases import Case, function, integers, modules, normal
from tests.support.plain_torch.torch_loss_cases import LOSSES


class Lookup(nn.Module):
    """Looks up rows of a table by indices and multiplies them by ``x``."""

    def __init__(self, table: nn.Module) -> None:
        super().__init__()
        self.table = table

    def forward(self, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        """Return rows of the table, of the shape of ``x``."""
        rows: torch.Tensor = self.table(indices)
        return rows * x


class SelfAttention(nn.Module):
    """Multi-head attention of ``x`` to itself."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the attended values, without the weights."""
        attended: torch.Tensor = self.attention(x, x, x, need_weights=False)[0]
        return attended


CONVOLUTIONS = [
    *modules(
        (4, 9),
        """Conv1d(4, 6, 3)
        Conv1d(4, 6, 3, stride=2, padding=1)
        Conv1d(4, 8, 3, groups=4, padding=2, dilation=2)
        Conv1d(4, 6, 3, padding="same", padding_mode="circular")
        utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3), dim=2)
        ConvTranspose1d(4, 6, 3, stride=2, output_padding=1)""",
    ),
    *modules(
        (4, 7, 8),
        """Conv2d(4, 6, 3)
        Conv2d(4, 6, 3, stride=2, padding=1, bias=False)
        Conv2d(4, 6, 1)
        Conv2d(4, 4, 3, groups=4)
        Conv2d(4, 6, 3, padding="same", padding_mode="reflect")
        ConvTranspose2d(4, 6, 3, stride=2, padding=1)
        ConvTranspose2d(4, 6, 3, groups=2)""",
    ),
    *modules((2, 5, 6, 4), "Conv3d(2, 3, 3)\nConvTranspose3d(2, 3, 2, stride=2)"),
]

POOLING = [
    *modules(
        (4, 9),
        """MaxPool1d(2)
        AvgPool1d(3, stride=2)
        LPPool1d(2, 3)
        AdaptiveAvgPool1d(4)
        AdaptiveMaxPool1d(4)""",
    ),
    *modules(
        (4, 8, 6),
        """MaxPool2d(2)
        MaxPool2d((3, 2), stride=2, padding=1)
        AvgPool2d(3, padding=1)
        LPPool2d(2, 2)
        AdaptiveAvgPool2d(3)
        AdaptiveAvgPool2d(1)
        AdaptiveMaxPool2d((3, 2))
        FractionalMaxPool2d(2, output_size=3)""",
    ),
    *modules(
        (2, 4, 6, 4),
        """MaxPool3d(2)
        AvgPool3d(2)
        LPPool3d(2, 2)
        AdaptiveAvgPool3d(2)
        AdaptiveMaxPool3d(2)
        FractionalMaxPool3d(2, output_size=2)""",
    ),
    function(
        "MaxUnpool1d",
        lambda x: nn.MaxUnpool1d(2)(*F.max_pool1d(x, 2, return_indices=True)),
        (4, 8),
    ),
    function(
        "MaxUnpool2d",
        lambda x: nn.MaxUnpool2d(2)(*F.max_pool2d(x, 2, return_indices=True)),
        (4, 8, 6),
    ),
    function(
        "MaxUnpool3d",
        lambda x: nn.MaxUnpool3d(2)(*F.max_pool3d(x, 2, return_indices=True)),
        (2, 4, 6, 4),
    ),
]

_PADS = ("CircularPad", "ReflectionPad", "ReplicationPad", "ZeroPad")
MOVES = [
    *modules((4, 9), "\n".join(f"{pad}1d(2)" for pad in _PADS)),
    *modules((4, 5, 6), "\n".join(f"{pad}2d(2)" for pad in _PADS)),
    *modules((2, 3, 4, 5), "\n".join(f"{pad}3d(1)" for pad in _PADS)),
    *modules(
        (4, 9),
        """ConstantPad1d(2, 0.5)
        Upsample(scale_factor=2)
        Upsample(scale_factor=2, mode="linear")""",
    ),
    *modules(
        (4, 6, 6),
        """ConstantPad2d(2, 0.5)
        PixelShuffle(2)
        PixelUnshuffle(2)
        ChannelShuffle(2)
        Flatten()
        Unflatten(1, (2, 2))
        Unfold(3, padding=1)
        Upsample(scale_factor=2)
        Upsample(scale_factor=2, mode="nearest-exact")
        Upsample(scale_factor=2, mode="bilinear")
        Upsample(scale_factor=2, mode="bicubic")
        UpsamplingNearest2d(scale_factor=2)
        UpsamplingBilinear2d(scale_factor=2)""",
    ),
    *modules((12, 9), "Fold((4, 4), 2)"),
    *modules(
        (2, 3, 4, 5),
        """ConstantPad3d(1, 0.5)
        Upsample(scale_factor=2)
        Upsample(scale_factor=2, mode="trilinear")""",
    ),
]

ACTIVATIONS = [
    *modules(
        (6,),
        """CELU()
        ELU()
        GELU()
        GELU("tanh")
        GLU()
        Hardshrink()
        Hardsigmoid()
        Hardswish()
        Hardswish(inplace=True)
        Hardtanh()
        Identity()
        LeakyReLU()
        LogSigmoid()
        LogSoftmax(-1)
        Mish()
        Mish(inplace=True)
        PReLU()
        RReLU()
        RReLU(inplace=True)
        ReLU()
        ReLU(inplace=True)
        ReLU6()
        SELU()
        SiLU()
        Sigmoid()
        Softmax(-1)
        Softmin(-1)
        Softplus()
        Softshrink()
        Softsign()
        Tanh()
        Tanhshrink()
        Threshold(0.1, 2.0)
        Threshold(0.1, 2.0, inplace=True)
        Dropout(0.3)
        AlphaDropout(0.3)""",
    ),
    *modules(
        (4, 5, 6),
        """Softmax2d()
        PReLU(4)
        Dropout2d(0.5)
        FeatureAlphaDropout(0.5)""",
    ),
    *modules((4, 5), "Dropout1d(0.5)"),
    *modules((4, 3, 2, 2), "Dropout3d(0.5)"),
]

NORMS = [
    *modules(
        (4, 6),
        """BatchNorm1d(4, track_running_stats=False)
        BatchNorm1d(4).eval()
        InstanceNorm1d(4, affine=True)
        GroupNorm(2, 4)
        LayerNorm((4, 6))
        LocalResponseNorm(2)
        RMSNorm(6)""",
    ),
    *modules(
        (4, 5, 6),
        """BatchNorm2d(4, track_running_stats=False)
        BatchNorm2d(4).eval()
        InstanceNorm2d(4)
        LocalResponseNorm(2)""",
    ),
    *modules(
        (4, 2, 3, 5),
        """BatchNorm3d(4, track_running_stats=False)
        BatchNorm3d(4).eval()
        InstanceNorm3d(4)""",
    ),
]

RECURRENT = [
    *modules(
        (3, 5),
        """RNN(5, 4, batch_first=True)
        GRU(5, 4, batch_first=True)
        GRU(5, 4, num_layers=2, dropout=0.3, bidirectional=True)""",
    ),
    *modules((5,), "RNNCell(5, 4)\nGRUCell(5, 4)\nLSTMCell(5, 4)"),
]

_HEADS = "8, 2, 16, batch_first=True"
LAYERS = [
    *modules((6,), "Linear(6, 3)\nLinear(6, 3, bias=False)"),
    *modules((5,), "Bilinear(5, 3, 4)", normal(3)),
    Case("MultiheadAttention", SelfAttention, (5, 8)),
    Case("MultiheadAttention with dropout", lambda: SelfAttention(dropout=0.1), (5, 8)),
    *modules(
        (5, 8),
        f"""TransformerEncoderLayer({_HEADS}, dropout=0.0)
        TransformerEncoder(nn.TransformerEncoderLayer({_HEADS}), 2, enable_nested_tensor=False)""",
    ),
    *modules(
        (5, 8),
        f"""Transformer(8, 2, 1, 1, 16, batch_first=True)
        TransformerDecoderLayer({_HEADS})
        TransformerDecoder(nn.TransformerDecoderLayer({_HEADS}), 2)""",
        normal(5, 8),
    ),
    Case("Embedding", lambda: Lookup(nn.Embedding(7, 5)), (3, 5), (integers(7, 3),)),
    Case(
        "Embedding with padding, scaled by frequency",
        lambda: Lookup(nn.Embedding(7, 5, padding_idx=1, scale_grad_by_freq=True)),
        (3, 5),
        (integers(7, 3),),
    ),
    *[
        Case(
            f"EmbeddingBag of {mode}",
            lambda mode=mode: Lookup(nn.EmbeddingBag(7, 5, mode=mode)),  # type: ignore[misc]
            (5,),
            (integers(7, 3),),
        )
        for mode in ("mean", "sum", "max")
    ],
]

MODULE_CASES = [
    *(*CONVOLUTIONS, *POOLING, *MOVES, *ACTIVATIONS),
    *(*NORMS, *LOSSES, *RECURRENT, *LAYERS),
]
