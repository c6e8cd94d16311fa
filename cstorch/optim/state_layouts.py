"""Optimizer state between a checkpoint file and torch's layout of a state dict.

A file has the tensors by the names of their parameters, and hyper-parameters and the number of
updates as one object; torch counts the parameters through all groups.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from cstorch.optim.state import STEP
from cstorch.remote.tensor import Remote, alias_of
from waferstream.checkpoint import OPTIMIZER_STATE
from waferstream.checkpoint.reader import Reader


def torch_layout(reader: Reader) -> dict[str, Any]:
    """Return the optimizer state of a checkpoint in torch's layout; a tensor is read on access.

    Files of earlier versions say nothing of groups: they have one, in alphabetical order.
    """
    tensors = _by_parameter(reader)
    saved = reader.objects.get("optimizer", {"updates": reader.objects.get("global_step", 0)})
    names = sorted(tensors)
    groups = saved.get("param_groups", [{"params": [*range(len(names))], "param_names": names}])
    states: dict[int, dict[str, torch.Tensor]] = {}
    for group in groups:
        for index, name in zip(group["params"], group["param_names"], strict=True):
            if name in tensors or saved["updates"]:
                seen = saved["updates"] - saved.get("missed", {}).get(name, 0)
                step = torch.tensor(float(seen))
                states[index] = {STEP: step, **tensors.get(name, {})}
    return {"state": states, "param_groups": groups}


def file_layout(state_dict: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors of a state dict by their names in a file, and the object beside them.

    Parameters without names have their numbers instead.
    """
    groups = [{**group} for group in state_dict["param_groups"]]
    names: dict[int, str] = {}
    for group in groups:
        group.setdefault("param_names", list(map(str, group["params"])))
        names |= zip(group["params"], group["param_names"], strict=True)
    tensors = {
        f"{names[index]}.{key}": tensor
        for index, state in state_dict["state"].items()
        for key, tensor in state.items()
        if isinstance(tensor, torch.Tensor) and key != STEP
    }
    updates = [int(state[STEP]) for state in state_dict["state"].values() if STEP in state]
    return tensors, {"updates": max(updates, default=0), "param_groups": groups}


def _by_parameter(reader: Reader) -> dict[str, dict[str, torch.Tensor]]:
    """Return lazy tensors by the name of their parameter, then by their key."""
    found: dict[str, dict[str, torch.Tensor]] = defaultdict(dict)
    for name in reader.names(OPTIMIZER_STATE):
        parameter, _, key = name.rpartition(".")
        shape = reader.tensors[f"{OPTIMIZER_STATE}.{name}"].shape
        remote = Remote(name, torch.empty(shape), _File(reader), is_fresh=False)
        found[parameter][key] = alias_of(remote)
    return dict(found)


@dataclass(frozen=True)
class _File:
    """A checkpoint as the holder of its tensors."""

    reader: Reader
    has_ended = False

    def settle(self) -> None:
        """Do nothing: no step changes a file."""

    def fetch(self, name: str, state: str = OPTIMIZER_STATE) -> np.ndarray:  # noqa: ARG002
        return self.reader[f"{OPTIMIZER_STATE}.{name}"]
