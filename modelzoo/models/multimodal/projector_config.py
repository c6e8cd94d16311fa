"""Keys of a projector: from activations of one model to those that another one reads."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, ValidationInfo
from pydantic import field_validator as check

from waferstream.core.config import Config


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
