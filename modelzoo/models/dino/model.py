"""DINO: a student learns from its own moving average, the teacher (Oquab et al. 2023, DINOv2).

The student sees small crops and large ones with hidden patches, the teacher whole large ones. No
gradient trains the teacher: MemoryX averages the student's weights
(waferstream.core.optimizer).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from modelzoo.models.dino.config import (
    HEADS,
    TRUNKS,
    Arguments,
    DinoConfig,
    Output,
    Pass,
    part_named,
)
from modelzoo.models.dino.parts import DinoLoss, Distillation, Head, KoLeoLoss, PatchLoss, Trunk
from modelzoo.models.freezing import freeze
from waferstream.core.optimizer import average_weights
from waferstream.core.program.micro_batches import Cut, check_groups
from waferstream.core.rng import stream_key
from waferstream.workload.models import ModelFamily

_LOSSES = {
    "DinoDistillationLoss": DinoLoss,
    "iBOTPatchLoss": PatchLoss,
    "KoLeoLoss": KoLeoLoss,
}

_ATTRIBUTES = {TRUNKS: "trunk", HEADS: "head"}

Outputs = dict[Output, torch.Tensor]


class DinoModel(nn.Module):
    """Trunks, heads and losses, wired as the configuration says: crops of images to loss.

    Activations have the dtype of the parameters; the loss is fp32. ``initialize`` fills the
    parameters.
    """

    def __init__(self, config: DinoConfig) -> None:
        super().__init__()
        self.config = config
        # Names without a number of their own, since a number in a path starts a layer.
        for number, trunk in enumerate(config.image_model_trunks):
            self.add_module(f"trunk_{number}", Trunk(trunk.image_model))
        for number, head in enumerate(config.heads):
            self.add_module(f"head_{number}", Head(head.head_model))
        for number, loss in enumerate(config.losses):
            self.add_module(f"loss_{number}", _LOSSES[loss.loss.name](loss.loss))

    def forward(
        self, global_view: torch.Tensor, local_view: torch.Tensor, collated_masks: torch.Tensor
    ) -> torch.Tensor:
        """Return the fp32 scalar loss, mean over samples.

        Args:
            global_view: Large crops, fp32 (B, V, C, height, width).
            local_view: Small crops, fp32 (B, v, C, height, width).
            collated_masks: 1 for hidden patches of large crops, int64 (B, V, P).

        Raises:
            ConfigError: B is no multiple of the samples of a group.
        """
        check_groups(Cut(global_view.shape[0], 1), self.group_of_samples)
        inputs = {
            "global_view": global_view,
            "local_view": local_view,
            "collated_masks": collated_masks,
        }
        outputs: Outputs = {}
        for number, trunk in enumerate(self.config.image_model_trunks):
            self._run(TRUNKS, number, trunk, inputs, outputs)
        for number, head in enumerate(self.config.heads):
            self._run(HEADS, number, head, inputs, outputs)
        total = global_view.new_zeros((), dtype=torch.float32)
        for number, each in enumerate(self.config.losses):
            loss = self.get_submodule(f"loss_{number}")
            for given in each.forward_args:
                total = total + each.loss_weight * loss(*_values(given, inputs, outputs))
        return total

    @property
    def group_of_samples(self) -> int:
        """Samples that share a loss or a draw, which no micro-batch may cut."""
        return self.config.group_of_samples

    def initialize(self, seed: int) -> None:
        """Initialize the parameters; each depends on (seed, its part, its name) alone."""
        copied = {part_named(c.target): part_named(c.source) for c in self.config.copy_init_weights}
        for part, attribute in _ATTRIBUTES.items():
            for number in range(len(self._passes(part))):
                own = copied.get((part, number), (part, number))
                module = self.get_submodule(f"{attribute}_{number}")
                assert isinstance(module, Trunk | Head), "made above"
                module.initialize(stream_key(seed, *own))
        for number in range(len(self.config.losses)):
            loss = self.get_submodule(f"loss_{number}")
            if isinstance(loss, Distillation):
                loss.center.reset()
        freeze(self, self.config.freeze)
        for each in self.config.ema:
            target, source = (self._part(*part_named(name)) for name in (each.target, each.source))
            average_weights([*target.parameters()], [*source.parameters()], each.decay)

    def _run(
        self,
        part: str,
        number: int,
        each: Pass,
        inputs: Mapping[str, torch.Tensor],
        outputs: Outputs,
    ) -> None:
        """Run the passes of a trunk or a head; note their outputs."""
        module = self._part(part, number)
        for forward, given in enumerate(each.forward_args):
            with torch.set_grad_enabled(torch.is_grad_enabled() and not each.stop_grad):
                found = module(*_values(given, inputs, outputs))
            for place, value in enumerate(found if isinstance(found, tuple) else (found,)):
                outputs[Output(part, number, forward, place)] = value

    def _passes(self, part: str) -> tuple[Pass, ...]:
        return self.config.image_model_trunks if part == TRUNKS else self.config.heads

    def _part(self, part: str, number: int) -> nn.Module:
        return self.get_submodule(f"{_ATTRIBUTES[part]}_{number}")


def _values(
    given: Arguments, inputs: Mapping[str, torch.Tensor], outputs: Outputs
) -> list[torch.Tensor]:
    """Return the values of arguments, without those that are nothing."""
    return [
        outputs[each] if isinstance(each, Output) else inputs[each]
        for each in given
        if each is not None
    ]


DINO = ModelFamily(DinoModel, DinoConfig)
