"""Attention of another device: the values and layouts of the processor's kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from csnode.devices import attention as module
from csnode.devices.attention import attention, attention_backward
from csnode.devices.cuda import reproducible

ATEN = torch.ops.aten


@pytest.mark.parametrize(("queries", "is_by_token"), [(2, True), (256, True), (2, False)])
@pytest.mark.parametrize("is_causal", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_plain_attention_is_that_of_the_processor(
    dtype: torch.dtype,
    is_causal: bool,
    queries: int,
    is_by_token: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Values within rounding, and the same layouts, which views that follow rely on."""
    monkeypatch.setattr(module, "QUERIES", queries)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(4, 2, 5, 3, 8, generator=generator).to(dtype)
    query, key, value, grad = (
        each.transpose(1, 2) if is_by_token else each.transpose(1, 2).contiguous() for each in drawn
    )
    mask = None if is_causal else torch.randn(2, 1, 5, 5, generator=generator).to(dtype)
    if mask is not None:
        mask[0, 0, 1] = -torch.inf
    options: dict[str, Any] = {"attn_mask": mask, "scale": 0.3}
    expected = ATEN._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, **options
    )
    found = attention(query, key, value, 0.0, is_causal, **options)
    operands: Any = (grad, query, key, value, *expected, 0.0, is_causal)
    expected += ATEN._scaled_dot_product_flash_attention_for_cpu_backward(*operands, **options)
    found_all = (*found, *attention_backward(*operands, **options))
    # The processor's kernel rounds the probabilities to bf16 before it multiplies by them.
    atol = 1e-5 if dtype == torch.float32 else 4 * 2.0**-8
    for ours, theirs in zip(found_all, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=atol)
        assert ours.stride() == theirs.stride()


@pytest.mark.parametrize("is_by_token", [True, False])
def test_flash_attention_has_the_layouts_of_the_processor(
    is_by_token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On torch's fakes of a GPU: forward and backward, whatever the layout of the operands."""
    monkeypatch.setattr(module, "_has_flash", lambda _: True)
    shape = (2, 6, 4, 64) if is_by_token else (2, 4, 6, 64)

    def laid_out(values: torch.Tensor) -> torch.Tensor:
        return values.transpose(1, 2) if is_by_token else values

    def layouts(tensors: Any) -> list[Any]:
        return [(each.shape, each.stride(), each.dtype) for each in tensors]

    query = laid_out(torch.ones(shape, dtype=torch.bfloat16))
    mixed, log_sums = ATEN._scaled_dot_product_flash_attention_for_cpu(
        query, query, query, 0.0, True
    )
    operands = (mixed, query, query, query, mixed, log_sums, 0.0, True)
    expected = ATEN._scaled_dot_product_flash_attention_for_cpu_backward(*operands)
    with FakeTensorMode():
        fake = laid_out(torch.empty(shape, dtype=torch.bfloat16, device="cuda"))
        output, sums = attention(fake, fake, fake, 0.0, True)
        grads = attention_backward(output, fake, fake, fake, output, sums, 0.0, True)
        assert layouts((output, *grads)) == layouts((mixed, *expected))
        assert (sums.shape, sums.dtype) == (log_sums.shape, log_sums.dtype)


@pytest.mark.parametrize(
    ("change", "takes"),
    [({}, True), ({"dtype": torch.float32}, False), ({"size": 20}, False), ({"size": 256}, False)],
)
def test_flash_attention_takes_what_it_can(
    change: dict[str, Any], takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By types and shapes; a triangle must be square, and there is no mask."""
    monkeypatch.setattr(module, "_has_flash", lambda _: True)
    dtype, size = change.get("dtype", torch.bfloat16), change.get("size", 64)
    with FakeTensorMode():
        query = torch.empty(2, 4, 6, size, device="cuda", dtype=dtype)
        key = torch.empty(2, 4, 9, size, device="cuda", dtype=dtype)
        mask = torch.empty(6, 6, device="cuda", dtype=dtype)
        assert module._takes_flash(query, query, query, None, is_causal=True) == takes
        assert module._takes_flash(query, key, key, None, is_causal=False) == takes
        assert not module._takes_flash(query, key, key, None, is_causal=True)
        assert not module._takes_flash(query, query, query, mask, is_causal=False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU of CUDA")
@pytest.mark.parametrize("is_causal", [True, False])
def test_flash_attention_of_a_gpu_repeats_and_is_that_of_blocks(
    is_causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values within the rounding of bf16, and the same bits each time, forward and backward."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(4, 2, 300, 4, 64, generator=generator).to("cuda", torch.bfloat16)
    query, key, value, grad = (each.transpose(1, 2) for each in drawn)

    def every() -> list[torch.Tensor]:
        with reproducible():
            forward = attention(query, key, value, 0.0, is_causal)
            operands: Any = (grad, query, key, value, *forward, 0.0, is_causal)
            return [*forward, *attention_backward(*operands)]

    assert module._takes_flash(query, key, value, None, is_causal=is_causal)
    found, again = every(), every()
    assert all(map(torch.equal, found, again))
    monkeypatch.setattr(module, "_takes_flash", lambda *_, **__: False)
    for flash, blocks in zip(found, every(), strict=True):
        torch.testing.assert_close(flash, blocks, rtol=1e-2, atol=4 * 2.0**-8)
