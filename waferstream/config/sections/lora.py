"""Configuration of low-rank adaptation (``waferstream.training.setup.model``)."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field, PositiveInt

from waferstream.core.config import Config


class LoraConfig(Config):
    """Which modules are adapted, and how.

    Keys and defaults are those of the vendor's callback ``Lora``, but for the rank, which is 0
    there: no adaptation.

    A linear layer or an embedding is adapted if every name of ``target_modules`` is the class of
    the module, or of one that it lies in: ``[TransformerDecoderLayer, Linear]`` stands for the
    linear layers of decoder layers.
    """

    r: PositiveInt
    """Rank of the matrices."""
    alpha: float = 1.0
    """The product of the matrices counts ``alpha / r`` times."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Of the input of the matrices of linear layers."""
    fan_in_fan_out: bool = False
    """Whether linear weights are stored with inputs first."""
    merge_weights: bool = False
    """Add the matrices to the weight in evaluations: one product, rounded in another place."""
    target_modules: tuple[str, ...] | None = None
    """All linear layers and embeddings if null."""

    def adapts(self, names: Collection[str]) -> bool:
        """Return whether a module is adapted, given the classes of it and of those around it."""
        return set(names).issuperset(self.target_modules or ())
