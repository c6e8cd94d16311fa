"""What a weight server knows of the loss scale."""

from __future__ import annotations

import torch

from memoryx.job.gradient_changes import LossScaling
from swarmx.links.memory import MemoryArena
from tests.support.plain_torch.plain_sgd import plain_sgd
from waferstream.core.messages.messages import NormTotal, WeightsReady
from waferstream.core.optimizer import LossScale, LossScaleRule
from waferstream.core.program.program import ProgramKind
from waferstream.core.roles.role import Job, Report

RULE = LossScaleRule(2000, 1.0, 2.0**15)
SLAB = MemoryArena().allocate(torch.float32.itemsize)


def test_weights_state_the_scale_of_their_own_step_only() -> None:
    """Weights that nothing updates stream ahead of the agreement."""
    scaling = LossScaling(
        plain_sgd(("w",), lr=1.0, loss_scale=RULE), Job(ProgramKind.TRAIN, 3, 5, LossScale(8.0))
    )
    early = WeightsReady(4, 0, 0, SLAB)
    assert scaling.stated_in(WeightsReady(3, 0, 0, SLAB)).loss_scale == 8.0
    assert scaling.stated_in(early).loss_scale is None
    report = Report("wgt-0")
    assert scaling.applied(3) == 3
    scaling.advance(NormTotal(3, 0.0, is_finite=False), report)
    assert scaling.stated_in(early).loss_scale == 4.0
    assert scaling.applied(4) == 3
    assert report.loss_scales[3].num_skipped_steps == 1


def test_fixed_scale_is_not_streamed() -> None:
    scaling = LossScaling(plain_sgd(("w",), lr=1.0, loss_scale=4.0), Job(ProgramKind.TRAIN, 1, 2))
    ready, report = WeightsReady(1, 0, 0, SLAB), Report("wgt-0")
    assert scaling.stated_in(ready) is ready
    scaling.advance(NormTotal(1, 1.0), report)
    assert (scaling.scale, scaling.applied(2), report.loss_scales) == (4.0, 2, {})
