"""Keys that a data loader takes from the model's section, as at the vendor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

SHARED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "BertTokenClassifierDataProcessor": ("label_vocab_file", "include_padding_in_loss"),
        "BertSumCSVDataProcessor": ("vocab_file",),
    }
)
"""Keys of the model by the data processor that reads them, too."""


def with_shared_keys(trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section ``trainer`` whose data loaders have the keys that they share.

    A value in the section of a data loader stays as it is.
    """
    init = trainer.get("init")
    model = init.get("model") if isinstance(init, Mapping) else None
    if not isinstance(model, Mapping):
        return dict(trainer)
    changed = dict(trainer)
    for mode in ("fit", "validate", "validate_all"):
        if isinstance(section := trainer.get(mode), Mapping):
            changed[mode] = {key: _completed(value, model) for key, value in section.items()}
    return changed


def _completed(value: Any, model: Mapping[str, Any]) -> Any:
    """Return the value of a key of a mode, with every data loader in it completed."""
    if isinstance(value, list | tuple):
        return [_completed(each, model) for each in value]
    if not isinstance(value, Mapping):
        return value
    return {**value, **dict(_missing(value, model))}


def _missing(loader: Mapping[str, Any], model: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    processor = loader.get("data_processor")
    for key in SHARED.get(processor, ()) if isinstance(processor, str) else ():
        if loader.get(key) is None and model.get(key) is not None:
            yield key, model[key]
