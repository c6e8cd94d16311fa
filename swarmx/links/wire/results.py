"""Results of a step on a link between hosts: numbers in the header, bytes of tensors behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

import torch

from swarmx.links.memory import MemorySlab
from waferstream.core.messages.payload import Payload
from waferstream.numerics.precision import DTYPES, NAMES

Results = tuple[tuple[int, tuple[float | torch.Tensor | None, ...]], ...]
"""Index and results of each micro-batch, as StepDone has them."""


def results_payload(results: Results) -> Payload | None:
    """Return a payload of all tensors among results, one after the other; None without any."""
    tensors = [
        value for _, values in results for value in values if isinstance(value, torch.Tensor)
    ]
    if not tensors:
        return None
    flat = torch.cat([t.detach().contiguous().view(-1).view(torch.uint8) for t in tensors])
    payload = MemorySlab(flat.numel())
    payload.view(torch.uint8).copy_(flat)
    return payload


def results_to_wire(results: Results) -> list[dict[str, Any]]:
    """Return the header's part of results."""
    return [
        {"micro_batch": index, "values": [_to_wire(value) for value in values]}
        for index, values in results
    ]


def results_from_wire(encoded: Sequence[Any], payload: Payload | None) -> Results:
    """Return the results of a header and its payload.

    Raises:
        ValueError: The payload is not that of the tensors.
    """
    content = torch.empty(0, dtype=torch.uint8) if payload is None else payload.view(torch.uint8)
    values = (value.tensor for one in encoded for value in one.values if value.HasField("tensor"))
    tensors = iter(_tensors(list(values), content))
    return tuple(
        (one.micro_batch, tuple(_from_wire(value, tensors) for value in one.values))
        for one in encoded
    )


def _to_wire(value: float | torch.Tensor | None) -> dict[str, Any]:
    if value is None:
        return {}
    if isinstance(value, torch.Tensor):
        return {"tensor": {"dtype": NAMES[value.dtype], "shape": list(value.shape)}}
    return {"number": value}


def _from_wire(value: Any, tensors: Iterator[torch.Tensor]) -> float | torch.Tensor | None:
    match value.WhichOneof("kind"):
        case "number":
            return float(value.number)
        case "tensor":
            return next(tensors)
    return None


def _tensors(types: Sequence[Any], content: torch.Tensor) -> list[torch.Tensor]:
    """Return copies of the tensors that a header announces; ValueError if it does not match."""
    sizes = []
    for announced in types:
        if announced.dtype not in DTYPES or any(size < 0 for size in announced.shape):
            raise ValueError(f"a tensor of {announced.dtype} {list(announced.shape)}")
        sizes.append(prod(announced.shape) * DTYPES[announced.dtype].itemsize)
    if sum(sizes) != content.numel():
        raise ValueError(f"{content.numel()} bytes for tensors of {sum(sizes)}")
    tensors = []
    for announced, piece in zip(types, content.split(sizes), strict=True):
        tensor = torch.empty(tuple(announced.shape), dtype=DTYPES[announced.dtype])
        # A copy: tensors of several dtypes lie behind one another without alignment.
        tensor.view(-1).view(torch.uint8).copy_(piece)
        tensors.append(tensor)
    return tensors
