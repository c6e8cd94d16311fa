"""Cases of the losses of torch.nn."""

from __future__ import annotations

import torch
from torch import nn

from tests.support.plain_torch.torch_cases import (
    function,
    integers,
    modules,
    normal,
    signs,
    uniform,
)

LOSSES = [
    *modules(
        (5,),
        """L1Loss()
        MSELoss()
        SmoothL1Loss()
        HuberLoss(delta=0.5)
        PoissonNLLLoss()
        PoissonNLLLoss(full=True)
        CosineSimilarity()
        PairwiseDistance()""",
        normal(5),
    ),
    *modules(
        (5,),
        """BCEWithLogitsLoss()
        BCEWithLogitsLoss(pos_weight=torch.rand(5))
        CrossEntropyLoss()
        KLDivLoss(reduction="batchmean")
        MultiLabelSoftMarginLoss()""",
        uniform(5),
    ),
    function("BCELoss()", lambda x, y: nn.BCELoss()(x.sigmoid(), y), (5,), uniform(5)),
    function(
        "BCELoss(weight)",
        lambda x, y: nn.BCELoss(torch.full((5,), 2.0))(x.sigmoid(), y),
        (5,),
        uniform(5),
    ),
    *modules((5,), "SoftMarginLoss()\nHingeEmbeddingLoss()", signs(5)),
    *modules((5,), "TripletMarginLoss()\nTripletMarginWithDistanceLoss()", normal(5), normal(5)),
    *modules((5,), "CosineEmbeddingLoss()", normal(5), signs()),
    *modules((), "MarginRankingLoss()", normal(), signs()),
    *modules(
        (5,),
        """CrossEntropyLoss()
        CrossEntropyLoss(label_smoothing=0.1)
        CrossEntropyLoss(weight=torch.rand(5), reduction="sum")
        NLLLoss()
        MultiMarginLoss()
        MultiMarginLoss(p=2)""",
        integers(5),
    ),
    *modules((5,), "MultiLabelMarginLoss()", integers(5, 5)),
    *modules((5, 3, 3), "CrossEntropyLoss()\nNLLLoss()", integers(5, 3, 3)),
    *modules((5,), "LinearCrossEntropyLoss(5, 7)", integers(7)),
    *modules(
        (5,),
        """GaussianNLLLoss()
        GaussianNLLLoss(full=True, reduction="sum")""",
        normal(5),
        uniform(5),
    ),
    *modules((5,), "GaussianNLLLoss()", normal(5), uniform()),
]
