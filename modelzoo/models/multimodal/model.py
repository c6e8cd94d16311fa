"""Language models that read images in place of tokens: LLaVA, and images at any places.

Liu et al. 2023, "Visual instruction tuning"; Liu et al. 2024, "Improved baselines with visual
instruction tuning" (LLaVA-1.5).

Shapes: B batch, T sequence, I images of a sample, P vectors of an image, C channels, H hidden.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from modelzoo.models.blocks.initializers import (
    UniformInitializer,
    WeightInitializer,
    XavierInitializer,
    fill_parameters,
)
from modelzoo.models.blocks.language_loss import language_loss, token_losses
from modelzoo.models.blocks.layers import NONLINEARITIES, Routings
from modelzoo.models.freezing import freeze
from modelzoo.models.gpt.model import Decoder, Rotations
from modelzoo.models.multimodal.config import (
    ImageModelConfig,
    ImageModelListConfig,
    LlavaConfig,
    MultimodalConfig,
    MultimodalSimpleConfig,
    ProjectorConfig,
)
from modelzoo.models.vit import PatchEncoder, check_image_size, fill_encoder
from waferstream.core.errors import DataError
from waferstream.workload.models import ModelFamily

_XAVIER = XavierInitializer(name="xavier_uniform")


class Projector(nn.Module):
    """Linear layers with a nonlinearity behind each: (..., input_unit) to (..., output_unit)."""

    def __init__(self, config: ProjectorConfig) -> None:
        super().__init__()
        self._sizes = [config.input_unit, *config.layers_units]
        self.layers = nn.ModuleList(
            nn.Linear(inputs, outputs, bias=config.use_bias)
            for inputs, outputs in pairwise(self._sizes)
        )
        self._names = config.layers_activation or (None,) * len(self.layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the projection of (..., input_unit)."""
        for layer, name in zip(self.layers, self._names, strict=True):
            x = layer(x)
            if name is not None:
                x = NONLINEARITIES[name](x)
        return x

    def by_inputs(self) -> dict[str, WeightInitializer]:
        """Return the initializers of torch's linear layers: uniform within 1 / sqrt(inputs)."""
        bounds = [float(inputs) ** -0.5 for inputs in self._sizes[:-1]]
        return {
            f"layers.{index}.weight": UniformInitializer(a=-bound, b=bound)
            for index, bound in enumerate(bounds)
        }


class MultimodalModel(nn.Module):
    """Language model whose sequence has vectors of images.

    Activations have the dtype of the parameters; the loss is fp32.
    """

    def __init__(self, config: MultimodalConfig) -> None:
        super().__init__()
        self.text_model = Decoder(config.text_model)

    def loss_of(
        self,
        config: MultimodalConfig,
        embedded: tuple[torch.Tensor, Rotations],
        labels: torch.Tensor,
        loss_mask: torch.Tensor,
        key_padding_mask: torch.Tensor,
    ) -> torch.Tensor:
        """Return the fp32 scalar loss of a sequence of vectors (B, T, H) and its rotation."""
        routings = Routings()
        tokens = 1 - key_padding_mask
        scores = self.text_model.decode(*embedded, tokens=tokens, routings=routings)
        loss = language_loss(config, token_losses(scores, labels), loss_mask)
        return self.text_model.balanced(loss, routings, loss_mask)

    @property
    def repeated_layers(self) -> nn.ModuleList | None:
        """The layers of the language model, if the forward pass runs all of them alike."""
        return self.text_model.repeated_layers


class LlavaModel(MultimodalModel):
    """LLaVA: an image and a text with places for it to loss."""

    def __init__(self, config: LlavaConfig) -> None:
        super().__init__(config)
        self.config = config
        self.image_model = ImageEncoder(config.encoder)
        self.projector_image_model = _projector(config.image_projector)

    def forward(
        self,
        image_data: torch.Tensor,
        text_input_ids: torch.Tensor,
        loss_mask: torch.Tensor,
        labels: torch.Tensor,
        key_padding_mask: torch.Tensor,
    ) -> torch.Tensor:
        """Return the fp32 scalar loss.

        Args:
            image_data: fp32 (B, C, height, width).
            text_input_ids: Tokens, int64 (B, T); those at the places of the image have no effect.
            loss_mask: 1 for labels that count, int64 (B, T).
            labels: Next tokens, int64 (B, T).
            key_padding_mask: 1 at padding, which no token reads, int64 (B, T).

        Raises:
            ConfigError: The image has another size, or T is more than the model takes.
            DataError: T has no room for the image.
        """
        image = self.image_model.vectors(image_data, self.config.image_feature_select_mode)
        if self.projector_image_model is not None:
            image = self.projector_image_model(image)
        first, last = self.config.image_start_idx, self.config.image_start_idx + image.shape[1]
        if last > text_input_ids.shape[1]:
            raise DataError(
                "a sequence must have the places of its image",
                code="sequence-without-image",
                value=f"{text_input_ids.shape[1]} places, the image ends at {last}",
                remedy="lower image_start_idx, or prepare longer sequences",
            )
        x, rotation = self.text_model.embed(text_input_ids)
        x = torch.cat([x[:, :first], image.to(x.dtype), x[:, last:]], dim=1)
        return self.loss_of(self.config, (x, rotation), labels, loss_mask, key_padding_mask)

    def initialize(self, seed: int) -> None:
        """Initialize the parameters; each depends on (seed, its name) alone."""
        self.text_model.initialize(seed, "text_model.")
        self.image_model.initialize(seed, "image_model.")
        if (own := self.projector_image_model) is not None:
            fill_parameters(own, seed, _XAVIER, own.by_inputs(), prefix="projector_image_model.")
        freeze(self, self.config.freeze or ())


class MultimodalSimpleModel(MultimodalModel):
    """Images and a text with places for them, anywhere, to loss."""

    def __init__(self, config: MultimodalSimpleConfig) -> None:
        super().__init__(config)
        self.config = config
        self.image_model = ImageEncoders(config.image_model_list)

    def forward(
        self,
        image_data: torch.Tensor,
        image_data_loc: torch.Tensor,
        text_input_ids: torch.Tensor,
        loss_mask: torch.Tensor,
        labels: torch.Tensor,
        key_padding_mask: torch.Tensor,
    ) -> torch.Tensor:
        """Return the fp32 scalar loss; arguments and errors besides as of ``LlavaModel``.

        Args:
            image_data: fp32 (B, I, C, height, width).
            image_data_loc: Place of each vector in the sequence, int64 (B, I, P); T for those of
                images that a sample lacks.
            text_input_ids: Tokens, int64 (B, T).
            loss_mask: 1 for labels that count, int64 (B, T).
            labels: Next tokens, int64 (B, T).
            key_padding_mask: 1 at padding, which no token reads, int64 (B, T).

        Raises:
            DataError: There are more or fewer places than vectors.
        """
        vectors = self.image_model(image_data.flatten(0, 1))
        if image_data_loc.shape[1:] != (image_data.shape[1], vectors.shape[1]):
            raise DataError(
                "image_data_loc must have a place for each vector of an image",
                code="image-places-mismatch",
                value=tuple(image_data_loc.shape[1:]),
                rule=f"({image_data.shape[1]} images, {vectors.shape[1]} vectors)",
                remedy="prepare the data with num_patches of the model",
            )
        x, rotation = self.text_model.embed(text_input_ids)
        images = vectors.unflatten(0, image_data.shape[:2]).flatten(1, 2).to(x.dtype)
        places = image_data_loc.flatten(1)[..., None].expand(images.shape)
        nowhere = torch.zeros_like(x[:, :1])  # takes the vectors of images that are not there
        x = torch.cat([x, nowhere], dim=1).scatter(1, places, images)[:, :-1]
        return self.loss_of(self.config, (x, rotation), labels, loss_mask, key_padding_mask)

    def initialize(self, seed: int) -> None:
        """Initialize the parameters; each depends on (seed, its name) alone."""
        self.text_model.initialize(seed, "text_model.")
        self.image_model.initialize(seed, "image_model.")
        freeze(self, self.config.freeze or ())


class ImageEncoder(PatchEncoder):
    """Encoder of images that is part of a model."""

    def __init__(self, config: ImageModelConfig) -> None:
        super().__init__(config)
        self.config = config

    def vectors(self, images: torch.Tensor, mode: str) -> torch.Tensor:
        """Return the vectors of images that a language model reads, (N, P, H)."""
        check_image_size(self.config, images)
        x = self.encode(images)
        if self.norm is not None:
            x = self.norm(x)
        return x[:, 1:] if mode == "patch" else x

    def initialize(self, seed: int, prefix: str) -> None:
        """Initialize the parameters; each depends on (seed, its name with the prefix) alone."""
        fill_encoder(self, self.config, seed, prefix)


class ImageEncoders(nn.Module):
    """Encoders of the same images, whose vectors are joined and projected."""

    def __init__(self, config: ImageModelListConfig) -> None:
        super().__init__()
        self._mode = config.image_feature_select_mode
        # Names without numbers of their own: a path ends a segment at its first number.
        self.image_model_list = nn.ModuleDict()
        for index, entry in enumerate(config.image_models):
            self.image_model_list[f"encoder_{index}"] = ImageEncoder(entry.image_encoder.read)
            if (own := _projector(entry.projection_layer)) is not None:
                self.image_model_list[f"projection_{index}"] = own
        self._num_encoders = len(config.image_models)
        self.projection = _projector(config.global_image_projection)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the vectors (N, P, H) of images (N, C, height, width)."""
        found = []
        for index in range(self._num_encoders):
            encoder = self.image_model_list[f"encoder_{index}"]
            assert isinstance(encoder, ImageEncoder), "as it was made"
            vectors = encoder.vectors(images, self._mode)
            name = f"projection_{index}"
            found.append(
                self.image_model_list[name](vectors) if name in self.image_model_list else vectors
            )
        joined = torch.cat(found, dim=1)
        return joined if self.projection is None else self.projection(joined)

    def initialize(self, seed: int, prefix: str) -> None:
        """Initialize the parameters; each depends on (seed, its name with the prefix) alone."""
        for name, part in self.named_modules():
            if isinstance(part, ImageEncoder):
                part.initialize(seed, f"{prefix}{name}.")
            elif isinstance(part, Projector):
                fill_parameters(part, seed, _XAVIER, prefix=f"{prefix}{name}.")


def _projector(config: ProjectorConfig | None) -> Projector | None:
    return None if config is None else Projector(config)


LLAVA = ModelFamily(LlavaModel, LlavaConfig)
MULTIMODAL_SIMPLE = ModelFamily(MultimodalSimpleModel, MultimodalSimpleConfig)
