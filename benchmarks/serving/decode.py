"""Decoding against transformers' ``generate``, the cost of steady rows, and what bounds both.

Arms take turns, each as many tokens for as many users; the processor time of a token counts, which
other work on the host changes least. ``free`` is the same program without row forms: products by
``linear`` and functions over whole tensors, as a loop that promises nothing would run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import process_time
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

from appliance.local import LocalRoles
from appliance.serving.pipeline import Pipeline, wafer_specs
from csnode.inference import stage as stage_module
from csnode.inference.kernels import Kernel
from csnode.micro_batch import SramLedger
from waferstream.compiler.extend import compile_extend
from waferstream.core.program.extend import ExtendProgram, ExtendSegment
from waferstream.core.serving import Part
from waferstream.serving.models.loading import HeldWeights
from waferstream.workload.hugging_face import CONVERSIONS
from waferstream.workload.models import build_model

PROMPT = 32
"""Tokens of each user's prompt, which are not measured."""

_ENOUGH = 10**12  # bytes of memory for all sequences

SIZES: Mapping[str, Mapping[str, int]] = {
    "110M": {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 2048},
    "500M": {"hidden_size": 1280, "num_hidden_layers": 20, "intermediate_size": 3584},
    "tiny": {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 128},
}
"""LLaMA of these extents with heads of 64 and a vocabulary of 32,000."""

Arm = Callable[[int, int], float]
"""Users and tokens of each to the seconds of processor time of a step."""


@dataclass(frozen=True)
class Decoding:
    """What was measured of one model."""

    size: str
    parameters: int
    ratios: dict[str, dict[int, list[float]]]
    """Of each comparison by number of users: how many times as fast ours is, in each trial."""
    read_share: list[float]
    """Bytes of weights a second with one user, as a share of a plain read of the same bytes."""

    def lines(self) -> Iterator[str]:
        """Yield the figures as text."""
        for other, by_users in self.ratios.items():
            for users, found in by_users.items():
                yield f"{self.size}, {users} users: {_spread(found)} times {other}"
        yield f"{self.size}, share of a plain read of the weights: {_spread(self.read_share)}"


def _spread(found: list[float]) -> str:
    return f"{median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def measure(size: str, users: list[int], tokens: int, repeats: int) -> Decoding:
    """Measure a model of random weights."""
    theirs, model = _models(size)
    program = compile_extend(lambda t, p: model.logits(t, position_ids=p), model)
    arms: dict[str, Arm] = {
        "transformers": partial(_generate, theirs),
        "free": partial(_extend, _pipeline(program, model, is_free=True)),
    }
    ours: Arm = partial(_extend, _pipeline(program, model, is_free=False))
    ratios: dict[str, dict[int, list[float]]] = {name: {n: [] for n in users} for name in arms}
    weight_bytes = sum(each.nbytes for each in model.parameters()) - model.embedding.weight.nbytes
    shares = []
    for _ in range(repeats):
        for number in users:
            own_s = ours(number, tokens)
            for name, arm in arms.items():
                ratios[name][number].append(arm(number, tokens) / own_s)
            if number == 1:
                shares.append(_read_s(weight_bytes) / own_s)
    parameters = sum(each.numel() for each in model.parameters())
    return Decoding(size, parameters, ratios, shares)


def _models(size: str) -> tuple[Any, Any]:
    """Return the model of transformers, and ours with the same weights."""
    from transformers import AutoConfig, AutoModelForCausalLM  # noqa: PLC0415  (an extra)

    heads = SIZES[size]["hidden_size"] // 64
    config = AutoConfig.for_model(
        "llama", vocab_size=32000, num_attention_heads=heads, max_position_embeddings=1024,
        **SIZES[size],
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(config).eval()
    section = CONVERSIONS["llama"].section(config.to_dict())
    ours = build_model(section, seed=0).eval()
    ours.load_state_dict(CONVERSIONS["llama"].to_ours(theirs.state_dict(), section))
    return theirs, ours


def _pipeline(program: ExtendProgram, model: nn.Module, *, is_free: bool) -> Pipeline:
    specs = wafer_specs(program, HeldWeights(model))
    if is_free:
        with patch.object(stage_module, "row_kernel", _free_kernel):
            roles = LocalRoles(specs)
    else:
        roles = LocalRoles(specs)
    return Pipeline(roles, specs, SramLedger("a benchmark", _ENOUGH), 1)


def _free_kernel(
    segment: ExtendSegment, operands: list[torch.Tensor], attend: Callable[..., torch.Tensor]
) -> Kernel:
    """Return the kernel as torch computes it, but for attention over the cache."""
    name = "torch.ops.waferstream.cached_attention.default"
    text = segment.kernel.text.replace(name, "attend")
    kernel = type(segment.kernel)(text, segment.kernel.modules, segment.kernel.constants)
    return partial(kernel.build({"attend": attend}), *operands)


def _extend(pipeline: Pipeline, users: int, tokens: int) -> float:
    names = [f"user-{number}" for number in range(users)]
    scores = pipeline.extend([Part(name, 0, tuple(range(PROMPT))) for name in names])
    begun_s = process_time()
    for step in range(tokens):
        new = scores.argmax(-1).tolist()
        parts = [Part(name, PROMPT + step, (t,)) for name, t in zip(names, new, strict=True)]
        scores = pipeline.extend(parts)
    spent_s = process_time() - begun_s
    for name in names:
        pipeline.forget(name)
    return spent_s / tokens


@torch.no_grad()
def _generate(model: Any, users: int, tokens: int) -> float:
    """Return the seconds of a token; those of the prompt, with the first one, are subtracted."""
    prompt = torch.arange(PROMPT)[None].expand(users, -1)
    spent_s = []
    for length in (1, tokens + 1):
        begun_s = process_time()
        model.generate(
            prompt, attention_mask=torch.ones_like(prompt), min_new_tokens=length,
            max_new_tokens=length, do_sample=False, pad_token_id=0,
        )  # fmt: skip
        spent_s.append(process_time() - begun_s)
    return (spent_s[1] - spent_s[0]) / tokens


def _read_s(num_bytes: int) -> float:
    """Return the seconds in which one thread reads so many bytes and adds them up."""
    block = torch.ones(num_bytes // 4)
    begun_s = process_time()
    block.sum()
    return process_time() - begun_s
