"""Counterpart of the vendor's compiled library: accepts attributes of tensors without effect."""

from __future__ import annotations

from typing import Any


class CompilerLibrary:
    """Functions of the library that public programs call."""

    @staticmethod
    def set_attribute(tensor: Any, name: str, value: Any) -> None:
        """Do nothing: attributes are hints for the vendor's compiler."""


cerebras_pytorch_lib = CompilerLibrary()
