"""Configurations of language models that read images, too (Model Zoo 2.10)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, PositiveInt, PrivateAttr, ValidationInfo, model_validator
from pydantic import field_validator as check

from modelzoo.models.blocks.language_loss import LanguageLossConfig
from modelzoo.models.blocks.transformer_config import ExpertsConfig
from modelzoo.models.freezing import NamePattern
from modelzoo.models.gpt.config import DecoderConfig
from modelzoo.models.gpt.sparse_attention import MemoryTokensConfig
from modelzoo.models.vit import PatchEncoderConfig
from waferstream.core.config import Config
from waferstream.workload.model_config import Feature, ModelConfig


class ImageModelConfig(PatchEncoderConfig):
    """Section ``image_model``: the encoder of images."""

    name: Literal["ViTModel", "vit"]
    attention_dropout_rate: float = Field(default=0.0, ge=0, lt=1)

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:  # noqa: ARG002
        return (Feature("image_data", self.image_shape),)


class ExtraFfnParams(Config):
    """Section ``extra_ffn_params``."""

    static_dual_expert: Literal[False] = False
    """Whether images have feed-forward networks of their own."""


class TextModelConfig(DecoderConfig):
    """Section ``text_model``: the language model, which reads images in place of tokens."""

    model_config = ConfigDict(populate_by_name=True)

    name: Literal["LlamaModel", "llama"]
    embedding_dropout_rate: float = Field(default=0.1, ge=0, lt=1, alias="embd_pdrop")
    extra_ffn_params: ExtraFfnParams = ExtraFfnParams()
    mup_base_hidden_size: None = None
    """Must be null: parts of a model have no learning rates of their own."""
    mup_base_filter_size: None = None
    """Must be null, as ``mup_base_hidden_size``."""

    @check("moe")
    @classmethod
    def _chooses_without_tokens(cls, moe: ExpertsConfig) -> ExpertsConfig:
        if moe.routing_algorithm == "hash":
            raise ValueError("routing_algorithm must not be hash: images have no tokens")
        return moe

    @check("memory_tokens")
    @classmethod
    def _has_no_memory(cls, memory: MemoryTokensConfig) -> MemoryTokensConfig:
        if memory.places is not None:
            raise ValueError("must be empty: images lie at places of a sequence")
        return memory

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        shape = (sequence_length or self.max_position_embeddings,)
        return (
            Feature("text_input_ids", shape, self.vocab_size),
            Feature("loss_mask", shape, 2),
            Feature("labels", shape, self.vocab_size),
            Feature("key_padding_mask", shape, 2),
        )


class MultimodalConfig(LanguageLossConfig, ModelConfig):
    """A language model that reads images in place of tokens."""

    text_model: TextModelConfig
    freeze: tuple[NamePattern, ...] | None = None
    """Regular expressions for names of modules and parameters that are not trained.

    ``^image_model`` stands for the encoder of images, ``^text_model`` for the language model.
    """


class ProjectorConfig(Config):
    """Linear layers with a nonlinearity behind each."""

    name: Literal["FeedForwardNetwork", "MLP"]
    input_unit: PositiveInt
    """Elements of what is projected."""
    layers_units: Annotated[tuple[PositiveInt, ...], Field(min_length=1)]
    """Elements after each layer."""
    layers_activation: tuple[Literal["gelu", "quick_gelu", "relu", "silu"] | None, ...] | None = (
        None
    )
    """Nonlinearity behind each layer; null for none."""
    use_bias: bool = False

    @property
    def output_unit(self) -> int:
        """Elements after the last layer."""
        return self.layers_units[-1]

    @check("layers_activation")
    @classmethod
    def _one_for_each_layer(
        cls, names: tuple[str | None, ...] | None, info: ValidationInfo
    ) -> tuple[str | None, ...] | None:
        layers = len(info.data.get("layers_units", names or ()))
        if names is not None and len(names) != layers:
            raise ValueError(f"must have one entry for each of {layers} layers")
        return names


def check_widths(projector: ProjectorConfig | None, inputs: int, outputs: int, name: str) -> None:
    """Raise ValueError unless a projector leads from ``inputs`` elements to ``outputs``.

    Without one, both must be equal. ``name`` is that of the key.
    """
    if projector is None:
        if inputs != outputs:
            raise ValueError(f"{name} is needed to lead from {inputs} elements to {outputs}")
    elif (projector.input_unit, projector.output_unit) != (inputs, outputs):
        raise ValueError(f"{name} must lead from {inputs} elements to {outputs}")


class ProjectorsConfig(Config):
    """Section ``projector``."""

    image_model: ProjectorConfig | None = None
    """From the encoder of images to the language model."""


class LlavaConfig(MultimodalConfig):
    """A language model after an image (Liu et al. 2023, LLaVA; Liu et al. 2024, LLaVA-1.5)."""

    name: str = "llava"
    image_model: ImageModelConfig
    projector: ProjectorsConfig | None = None
    image_feature_select_layer_idx: int = -1
    """Layer whose output is read, from 0, or from -1 backwards; later ones are left out."""
    image_feature_select_mode: Literal["patch", "cls_patch"] = "patch"
    """Whether the vector before the patches is read, too."""
    image_start_idx: PositiveInt = 1
    """Place of the first patch in the sequence."""

    @property
    def encoder(self) -> ImageModelConfig:
        """The encoder up to the layer that is read."""
        return self.image_model.up_to(self.image_feature_select_layer_idx)

    def as_read(self, section: Mapping[str, Any]) -> Mapping[str, Any]:
        read = {"num_hidden_layers": self.encoder.num_hidden_layers}
        encoder = {**section["image_model"], **read}
        return {**section, "image_model": encoder, "image_feature_select_layer_idx": -1}

    @property
    def image_projector(self) -> ProjectorConfig | None:
        """From the encoder of images to the language model."""
        return None if self.projector is None else self.projector.image_model

    @property
    def num_image_tokens(self) -> int:
        """Places of an image in the sequence."""
        return num_vectors(self.image_model, self.image_feature_select_mode)

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        return (*self.image_model.features(), *self.text_model.features(sequence_length))

    @check("projector")
    @classmethod
    def _leads_to_the_text(
        cls, projector: ProjectorsConfig | None, info: ValidationInfo
    ) -> ProjectorsConfig | None:
        if {"image_model", "text_model"} <= info.data.keys():
            inputs, outputs = (info.data[f"{m}_model"].hidden_size for m in ("image", "text"))
            own = None if projector is None else projector.image_model
            check_widths(own, inputs, outputs, "a projector")
        return projector

    @check("image_feature_select_layer_idx")
    @classmethod
    def _is_a_layer(cls, layer: int, info: ValidationInfo) -> int:
        if "image_model" in info.data:
            info.data["image_model"].up_to(layer)
        return layer

    @check("image_start_idx")
    @classmethod
    def _image_fits(cls, start: int, info: ValidationInfo) -> int:
        known = info.data
        if {"image_model", "text_model", "image_feature_select_mode"} <= known.keys():
            length = num_vectors(known["image_model"], known["image_feature_select_mode"])
            most = known["text_model"].max_position_embeddings
            if start + length > most:
                raise ValueError(f"an image of {length} places must end within {most}")
        return start


class ListedImageModelConfig(ImageModelConfig):
    """Section ``image_encoder``: one of several encoders of the same images."""

    image_layer_idx: int | None = None
    """Layer whose output is read, from 0, or from -1 backwards; null: the last, and its norm."""

    @property
    def read(self) -> Self:
        """The encoder up to the layer that is read."""
        return self if self.image_layer_idx is None else self.up_to(self.image_layer_idx)

    def as_read(self, section: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return this section of a params file without layers whose output nothing reads."""
        if self.image_layer_idx is None:
            return section
        read = {"num_hidden_layers": self.read.num_hidden_layers}
        return {**section, **read, "image_layer_idx": -1}

    @model_validator(mode="after")
    def _is_a_layer(self) -> Self:
        if self.image_layer_idx is not None:
            self.up_to(self.image_layer_idx)
        return self


class ImageEncoderEntry(Config):
    """An encoder of images, with a projector of its own."""

    image_encoder: ListedImageModelConfig
    projection_layer: ProjectorConfig | None = None

    @property
    def width(self) -> int:
        """Elements of a vector after the projector."""
        own = self.projection_layer
        return self.image_encoder.hidden_size if own is None else own.output_unit


class ImageModelListConfig(Config):
    """Section ``image_model_list``: encoders of the same images, whose outputs are joined."""

    image_feature_select_mode: Literal["patch", "cls_patch"] = "patch"
    """Whether the vectors before the patches are read, too."""
    image_models: Annotated[tuple[ImageEncoderEntry, ...], Field(min_length=1)]
    global_image_projection: ProjectorConfig | None = None
    """From the joined outputs to the language model."""

    @property
    def num_image_tokens(self) -> int:
        """Vectors of an image: those of all encoders, one after the other."""
        mode = self.image_feature_select_mode
        return sum(num_vectors(each.image_encoder, mode) for each in self.image_models)

    @model_validator(mode="after")
    def _outputs_can_be_joined(self) -> Self:
        for each in self.image_models:
            encoder = each.image_encoder
            check_widths(each.projection_layer, encoder.hidden_size, each.width, "projection_layer")
        widths = {each.width for each in self.image_models}
        shapes = {each.image_encoder.image_shape for each in self.image_models}
        if len(widths) > 1 or len(shapes) > 1:
            raise ValueError("all image_models must read one size, and give vectors of one width")
        return self


class MultimodalSimpleConfig(MultimodalConfig):
    """A language model that reads images at any places of a sequence."""

    name: str = "multimodal_simple"
    image_model_list: ImageModelListConfig
    _max_num_img: int = PrivateAttr(default=1)

    def features(self, sequence_length: int | None = None) -> tuple[Feature, ...]:
        length = sequence_length or self.text_model.max_position_embeddings
        images, found = self._max_num_img, self.image_model_list
        return (
            Feature("image_data", (images, *found.image_models[0].image_encoder.image_shape)),
            Feature("image_data_loc", (images, found.num_image_tokens), length + 1),
            *self.text_model.features(length),
        )

    def as_read(self, section: Mapping[str, Any]) -> Mapping[str, Any]:
        encoders = section["image_model_list"]
        pairs = zip(encoders["image_models"], self.image_model_list.image_models, strict=True)
        models = [
            {**entry, "image_encoder": known.image_encoder.as_read(entry["image_encoder"])}
            for entry, known in pairs
        ]
        return {**section, "image_model_list": {**encoders, "image_models": models}}

    def for_data(self, section: Mapping[str, Any]) -> Self:
        copied = self.model_copy()
        copied._max_num_img = section.get("max_num_img") or 1
        return copied

    @check("image_model_list")
    @classmethod
    def _leads_to_the_text(
        cls, encoders: ImageModelListConfig, info: ValidationInfo
    ) -> ImageModelListConfig:
        if "text_model" in info.data:
            width, hidden = encoders.image_models[0].width, info.data["text_model"].hidden_size
            own = encoders.global_image_projection
            check_widths(own, width, hidden, "global_image_projection")
        return encoders


def num_vectors(encoder: PatchEncoderConfig, mode: Literal["patch", "cls_patch"]) -> int:
    """Return the vectors of an image that are read: its patches, and the one before them."""
    return prod(encoder.grid) + (mode == "cls_patch")
