"""Parts of DINO: the encoder of several images, the head, and the losses.

Shapes: B batch, V views (crops) of an image, P patches, H hidden, K prototypes, G group.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from modelzoo.models.bert.model import gathered
from modelzoo.models.blocks.initializers import (
    ConstantInitializer,
    KaimingUniformInitializer,
    OnesInitializer,
    TruncatedNormalInitializer,
    ZerosInitializer,
    fill_parameters,
)
from modelzoo.models.dino.parts_config import (
    DistillationConfig,
    HeadConfig,
    KoLeoLossConfig,
    TrunkConfig,
)
from modelzoo.models.vit import PatchEncoder
from waferstream.compiler.results.step_means import StepMean

_SHORTEST = 1e-12
"""Least length by which a vector is divided (torch's normalize)."""
_EPSILON = 1e-8
"""Added to squared lengths and to distances by the published loss (facebookresearch/dinov2)."""


class Trunk(PatchEncoder):
    """An encoder of large and small crops, with a trained vector for hidden patches."""

    def __init__(self, config: TrunkConfig) -> None:
        super().__init__(config)
        self._config = config
        self.mask_token: nn.Parameter | None = None
        if config.use_masked_patches:
            self.mask_token = nn.Parameter(torch.empty(config.hidden_size))

    def forward(
        self, images: torch.Tensor, masks: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return activations (B, V, 1 + P, H) and those of whole images (B, V, H).

        Args:
            images: fp32 (B, V, C, height, width).
            masks: 1 for hidden patches, int64 (B, V, P).
        """
        masks = None if masks is None else masks.flatten(0, 1)
        x = self.encode(images.flatten(0, 1), masks)
        if self.norm is not None:
            x = self.norm(x)
        x = x.unflatten(0, images.shape[:2])
        return x, x[:, :, 0]

    def initialize(self, seed: int) -> None:
        """Initialize the parameters; each depends on (seed, its name) alone."""
        config = self._config
        plain = TruncatedNormalInitializer(std=config.initializer_range)
        default = config.default_initializer or plain
        own = {
            "patch.weight": config.projection_initializer,
            "position.weight": config.position_embedding_initializer,
            "class_token": config.cls_token_initializer,
            "mask_token": ZerosInitializer(),
            "scale.factor": ConstantInitializer(val=config.layer_scale or 1.0),
        }
        fill_parameters(self, seed, default, {name: i for name, i in own.items() if i is not None})

    def _hidden(self, embedded: torch.Tensor, masks: torch.Tensor | None) -> torch.Tensor:
        if masks is None:
            return embedded
        assert self.mask_token is not None, "checked by the configuration"
        return torch.where(masks[..., None] > 0, self.mask_token, embedded)

    def _placed(self, x: torch.Tensor) -> torch.Tensor:
        weight, local = self.position.weight, self._config.interpolate_position_embedding
        if x.shape[1] == len(weight) or local is None:
            return super()._placed(x)
        grid = self._config.grid
        factors = [
            (side + local.interpolate_offset) / whole
            for side, whole in zip(local.local_patch_dims, grid, strict=True)
        ]
        resized = F.interpolate(
            weight[1:].T.unflatten(1, grid)[None].float(),
            scale_factor=factors,
            mode="bicubic",
            antialias=local.antialias,
        )
        return x + torch.cat([weight[:1], resized[0].flatten(1).T.to(weight.dtype)])


class Head(nn.Module):
    """Vectors to scores: a network, then the scalar product with prototypes (Caron et al. 2021)."""

    def __init__(self, config: HeadConfig) -> None:
        super().__init__()
        self._config = config
        inner = [config.hidden_size] * (config.num_layers - 1)
        sizes = [config.input_size, *inner, config.bottleneck_size]
        self.mlp = nn.Sequential()
        for place, (size, following) in enumerate(pairwise(sizes)):
            if place:
                self.mlp.append(nn.GELU())
            self.mlp.append(nn.Linear(size, following, bias=config.use_bias_in_mlp))
        self.last_layer = Prototypes(config.output_size, config.bottleneck_size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores (..., K) of vectors (..., H)."""
        scores: torch.Tensor = self.last_layer(F.normalize(self.mlp(x), dim=-1, eps=_SHORTEST))
        return scores

    def initialize(self, seed: int) -> None:
        """Initialize the parameters; each depends on (seed, its name) alone."""
        plain = TruncatedNormalInitializer(std=self._config.initializer_range)
        own = {
            "last_layer.weight_g": OnesInitializer(),
            "last_layer.weight_v": KaimingUniformInitializer(a=5**0.5),
        }
        fill_parameters(self, seed, self._config.initializer or plain, own)
        self.last_layer.weight_g.requires_grad_(not self._config.norm_last_layer)


class Prototypes(nn.Module):
    """Prototypes as direction and length (Salimans and Kingma 2016, weight normalization)."""

    def __init__(self, number: int, size: int) -> None:
        super().__init__()
        self.weight_g = nn.Parameter(torch.empty(number, 1))
        self.weight_v = nn.Parameter(torch.empty(number, size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the scalar products (..., K) of vectors with all prototypes."""
        lengths = self.weight_v.norm(dim=1, keepdim=True)
        return F.linear(x, self.weight_v * (self.weight_g / lengths))


class Distillation(nn.Module):
    """What both losses share: the teacher's probabilities, centred and sharpened.

    The center is a mean over the batch of each step (waferstream.compiler.results.step_means): all
    samples of a step read the center that the step before has left, on any number of systems.
    """

    def __init__(self, config: DistillationConfig) -> None:
        super().__init__()
        self._config = config
        self.center = StepMean(config.input_size, config.center_momentum)

    def temperature(self) -> torch.Tensor:
        """Return the temperature of the teacher in this step, a fp32 scalar."""
        config = self._config
        step, warm_up = self.center.num_steps, config.warmup_teacher_temp_steps
        rise = (config.teacher_temp - config.warmup_teacher_temp) / max(1, warm_up - 1)
        warming = config.warmup_teacher_temp + (rise * step.float() if warm_up > 1 else 0.0)
        return torch.where(step < warm_up, warming, config.teacher_temp)

    def taught(self, scores: torch.Tensor) -> torch.Tensor:
        """Return the probabilities (..., K) of the teacher's scores, fp32, without gradient."""
        centred = scores.detach().float() - self.center.value
        return (centred / self.temperature()).softmax(-1)

    def learned(self, scores: torch.Tensor) -> torch.Tensor:
        """Return the logarithms of probabilities (..., K) of the student's scores, fp32."""
        return (scores.float() / self._config.student_temp).log_softmax(-1)


class DinoLoss(Distillation):
    """Cross entropy between crops of an image (Caron et al. 2021, equation 3)."""

    def forward(
        self,
        student: torch.Tensor,
        teacher: torch.Tensor,
        student_small: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the fp32 mean over samples and pairs of different crops.

        Args:
            student: Scores of large crops (B, V, K).
            teacher: Scores of the same crops (B, V, K).
            student_small: Scores of small crops (B, v, K).
        """
        taught, learned = self.taught(teacher), self.learned(student)
        pairs = [
            self._entropy(taught[:, i], learned[:, j])
            for i in range(taught.shape[1])
            for j in range(learned.shape[1])
            if i != j
        ]
        if student_small is not None:
            small = self.learned(student_small)
            pairs += [
                self._entropy(taught[:, i], small[:, j])
                for i in range(taught.shape[1])
                for j in range(small.shape[1])
            ]
        if self.training:
            scores = teacher.detach().float()
            self.center.add(scores.sum((0, 1)), torch.ones_like(scores[..., 0]).sum())
        return torch.stack(pairs).mean()

    @staticmethod
    def _entropy(taught: torch.Tensor, learned: torch.Tensor) -> torch.Tensor:
        return -(taught * learned).sum(-1).mean()


class PatchLoss(Distillation):
    """Cross entropy of hidden patches (Zhou et al. 2022, iBOT, equation 2)."""

    def forward(
        self, teacher: torch.Tensor, student: torch.Tensor, masks: torch.Tensor
    ) -> torch.Tensor:
        """Return the fp32 mean over images of the mean over their hidden patches.

        Args:
            teacher: Scores of the image and its patches (B, V, 1 + P, K).
            student: Those of the student, who does not see the hidden ones.
            masks: 1 for hidden patches, int64 (B, V, P).
        """
        teacher, student = teacher[:, :, 1:], student[:, :, 1:]
        hidden = masks.float()
        losses = -(self.taught(teacher) * self.learned(student)).sum(-1) * hidden
        counts = hidden.sum(-1, keepdim=True).clamp(min=1)
        if self.training:
            scores = teacher.detach().float() * hidden[..., None]
            self.center.add(scores.sum((0, 1, 2)), hidden.sum())
        return (losses / counts).sum(-1).mean()


class KoLeoLoss(nn.Module):
    """Spread of the vectors of images (Sablayrolles et al. 2019, arXiv:1806.03198, section 3).

    The nearest other image is looked for among ``group_size`` consecutive samples, in the type in
    which matrices are multiplied; the distance is fp32.
    """

    def __init__(self, config: KoLeoLossConfig) -> None:
        super().__init__()
        self._group_size = config.group_size

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the fp32 sum over views of the mean over samples, of vectors (B, V, H)."""
        grouped = vectors.float().unflatten(0, (-1, self._group_size)).transpose(1, 2)
        x = grouped.flatten(0, 1)  # (B / G * V, G, H)
        x = x / (x.square().sum(-1, keepdim=True) + _EPSILON).sqrt()
        itself = torch.eye(self._group_size, dtype=torch.bool, device=x.device)
        with torch.no_grad():
            products = (x @ x.transpose(1, 2)).masked_fill(itself, -2.0)  # below that of opposites
        nearest = gathered(x, products.argmax(-1))
        distances = (x - nearest).norm(dim=-1)
        loss: torch.Tensor = -(distances + _EPSILON).log().mean() * vectors.shape[1]
        return loss
