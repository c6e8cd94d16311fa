"""Keys of params.yaml and cluster.yaml that are typed as flags: ``--model.hidden_size 512``.

A key begins at a section of ``trainer.init`` (``model``), at one of ``trainer`` (``fit``), at a
data loader (``train_dataloader``), or at a section of cluster.yaml (``machine``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from appliance.spec import ClusterSpec
from waferstream.config.overrides import BACKEND, INIT, KeyPath, Override
from waferstream.config.params import FitConfig, InitConfig
from waferstream.core.config import read_value
from waferstream.core.config_errors import unknown

PLACES: Mapping[str, KeyPath] = {
    "trainer": (),
    **{name: (name,) for name in ("init", "fit", "validate", "validate_all")},
    **{name: (*INIT, name) for name in InitConfig.model_fields},
    "cluster_config": (*BACKEND, "cluster_config"),
    **{name: ("fit", name) for name in FitConfig.model_fields if name.endswith("dataloader")},
}
"""Where in ``trainer`` a key lies, by its first word."""


@dataclass(frozen=True)
class TypedKeys:
    """Values of keys, by the file that they are laid over."""

    params: tuple[Override, ...] = ()
    cluster: tuple[Override, ...] = ()


def known_keys() -> Iterator[str]:
    """Yield the keys that every file may have, each as it is typed; models and data add theirs."""
    for name, field in ClusterSpec.model_fields.items():
        yield from _below(name, field.annotation)
    for name, field in InitConfig.model_fields.items():
        yield from _below(name, field.annotation)


def _below(path: str, kind: Any) -> Iterator[str]:
    """Yield the keys of a section, or the path of a value."""
    sections = [kind] if isinstance(kind, type) else get_args(kind)
    fields = [each.model_fields for each in sections if hasattr(each, "model_fields")]
    if not fields:
        yield path
    for name, field in (pair for each in fields for pair in each.items()):
        yield from _below(f"{path}.{field.alias or name}", field.annotation)


def typed_keys(pairs: Iterable[tuple[str, str]]) -> TypedKeys:
    """Return the values of typed keys, read as YAML.

    Raises:
        ConfigError: The first word of a key is no section.
    """
    params, cluster = [], []
    for name, text in pairs:
        first, *rest = name.split(".")
        flag = f"--{name}"
        if first in ClusterSpec.model_fields:
            cluster.append(Override(flag, (first, *rest), read_value(text, flag)))
        elif first in PLACES:
            params.append(Override(flag, (*PLACES[first], *rest), read_value(text, flag)))
        else:
            known = sorted({*PLACES, *ClusterSpec.model_fields})
            raise unknown(f"key {name!r}", "keys", first, known, flag)
    return TypedKeys(tuple(params), tuple(cluster))
