"""Arithmetic and traffic of a micro-batch on one GPU, written out with round numbers."""

from dataclasses import replace
from typing import Any

import pytest

from waferstream.baselines.gpu.clusters import DGX_A100
from waferstream.baselines.gpu.hardware import GpuSpec, HostSpec
from waferstream.baselines.gpu.software import FSDP, SoftwareSpec
from waferstream.baselines.gpu.step import head_s, layer_s, optimizer_s
from waferstream.baselines.gpu.workload import Parallelism, Workload

GPU = GpuSpec(
    name="round numbers",
    hbm_bytes=1,
    usable_share=1,
    nvlink_bandwidth_bytes_per_s=1,
    flops_16bit_per_s=2000,
    flops_8bit_per_s=4000,
    matmul_share=0.5,
    flash_share=0.25,
    misaligned_share=0.1,
    hbm_bandwidth_bytes_per_s=1000,
    hbm_share=0.1,
    kernel_s=0,
)
SOFTWARE = FSDP.model_copy(
    update={
        "attention_speed": 0.5,
        "hidden_passes": 30,
        "whole_passes": 0,
        "vocabulary_bytes": 40,
        "float8_share": 0.75,
    }
)
UNFUSED = SOFTWARE.model_copy(update={"flash_attention": False, "score_bytes": 9})
MODEL = Workload(parameters=512 + 2 * 5000, hidden=16, layers=2, heads=2, seq_len=4, vocab=16)
"""A layer of 5,000 weights and 2 x 4 x 4 scores to a sequence, each from heads of 8 elements."""

TOKENS, SCORES = 3 * 4, 3 * 32
PRODUCTS_S = 3 * 2 * 5000 * TOKENS / 1000  # forward, and twice as much backward
FLASH_S = 3.5 * (4 * SCORES * 8 / 2) / (2000 * 0.25 * 0.5)
MOVED_S = 30 * 2 * 16 * TOKENS / 100


def layer(workload: Workload = MODEL, software: SoftwareSpec = SOFTWARE, **split: Any) -> float:
    return layer_s(workload, Parallelism(micro_batch=3, **split), GPU, software)


def test_layer_s_adds_products_attention_and_traffic() -> None:
    """Their sum."""
    assert layer() == pytest.approx(PRODUCTS_S + FLASH_S + MOVED_S)


def test_layer_s_repeats_recomputed_work() -> None:
    """Half of the products and all cheap ops; a forward pass, without its last product."""
    assert layer(recompute="selective") == pytest.approx(
        3.5 / 3 * PRODUCTS_S + FLASH_S + 4 / 3 * MOVED_S
    )
    whole = 4 / 3 * PRODUCTS_S + 4.5 / 3.5 * FLASH_S + 4 / 3 * MOVED_S
    assert layer(recompute="full") == pytest.approx(whole)
    assert layer(recompute="needed") == pytest.approx(whole - PRODUCTS_S / 9)


def test_unfused_attention_computes_and_moves_masked_scores() -> None:
    """At the rate of matrix products, a tenth of it if heads are misaligned."""
    products_s, moved_s = 3 * 4 * SCORES * 8 / 1000, 9 * SCORES / 100
    rest_s = PRODUCTS_S + MOVED_S
    assert layer(software=UNFUSED) == pytest.approx(rest_s + products_s + moved_s)
    again = layer(software=UNFUSED, recompute="full") - layer(recompute="full")
    assert again == pytest.approx(4 / 3 * (products_s + moved_s) - 4.5 / 3.5 * FLASH_S)
    many = replace(MODEL, heads=4)  # of four elements; twice the scores
    assert layer(many, UNFUSED) == pytest.approx(rest_s + 10 * products_s + 2 * moved_s)


def test_misaligned_hidden_size_slows_products() -> None:
    """To a tenth; traffic and attention are unchanged."""
    odd = replace(MODEL, hidden=20, parameters=2 * 16 * 20 + 2 * 5000)
    expected = 10 * PRODUCTS_S + 20 / 16 * (FLASH_S + MOVED_S)
    assert layer(odd) == pytest.approx(expected)


def test_float8_speeds_up_products_only() -> None:
    """Twice the peak, of which three quarters are reached."""
    assert layer(float8=True) == pytest.approx(PRODUCTS_S / 1.5 + FLASH_S + MOVED_S)


def test_tensor_parallelism_divides_all_but_whole_passes() -> None:
    """Ten of thirty passes."""
    software = SOFTWARE.model_copy(update={"whole_passes": 10})
    assert layer(software=software, tensor=4) == pytest.approx(
        (PRODUCTS_S + FLASH_S + 2 / 3 * MOVED_S) / 4 + MOVED_S / 3
    )


def test_head_s_is_one_product_and_its_logits() -> None:
    """256 weights, forward and backward, and 40 bytes to each of 16 entries."""
    expected = 6 * 256 * TOKENS / 1000 + 40 * 16 * TOKENS / 100
    assert head_s(MODEL, Parallelism(micro_batch=3), GPU, SOFTWARE) == pytest.approx(expected)
    assert head_s(MODEL, Parallelism(micro_batch=3, tensor=4), GPU, SOFTWARE) == pytest.approx(
        expected / 4
    )


def test_optimizer_s_on_the_gpu_and_on_the_host() -> None:
    """On the host, gradient and weight also pass PCIe."""
    host = HostSpec(launch_s=0, adam_per_core_s=10, pcie_bandwidth_bytes_per_s=50, prompt_s=0)
    cluster = DGX_A100.model_copy(update={"gpu": GPU, "host": host})
    assert optimizer_s(700, 0, cluster) == pytest.approx(700 * 28 / 100)
    assert optimizer_s(700, 2, cluster) == pytest.approx(700 / 20 + 700 * 4 / 50)
