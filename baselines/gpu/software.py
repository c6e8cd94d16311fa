"""What a training stack makes of a GPU: fused or not, how it communicates, what it exposes.

One class per stack, as one would fit a software release: numbers are fitted where calibration rows
of that stack exist and shared otherwise. Never per model and never per row.
"""

from __future__ import annotations

from pydantic import NonNegativeFloat, PositiveFloat

from timing.hardware.sourced import sourced
from wsc.core.config import Config


class SoftwareSpec(Config):
    """FSDP with fused attention, one unit per layer; LLM Foundry of 2023."""

    name: str = "FSDP"
    flash_attention: bool = True
    matmul_speed: PositiveFloat = sourced(
        1.0, "derived", "against what the GPU sustains: shares of GPUs are fitted with this stack"
    )
    attention_speed: PositiveFloat = sourced(
        0.5, "published", "first FlashAttention (Triton); Dao: the second is twice as fast"
    )
    hidden_passes: PositiveFloat = sourced(
        105,
        "derived",
        "16-bit reads and writes of one hidden vector per token and layer, forward and backward:"
        " matrix operands 48, norms, GELU, residuals, copies and bias sums 57",
    )
    whole_passes: PositiveFloat = sourced(
        12,
        "derived",
        "of those, what tensor parallelism does not divide beside sequence parallelism (Korthikanti"
        " et al., 2022): inputs of the blocks and their partial results, three times, since the"
        " backward pass has two products for each",
    )
    vocabulary_bytes: PositiveFloat = sourced(
        42,
        "derived",
        "bytes moved per token and vocabulary entry: 16-bit logits and their gradient, cast to"
        " fp32 for the loss and back",
    )
    score_bytes: NonNegativeFloat = sourced(
        0, "derived", "bytes moved per score of the attention matrix; none with fused attention"
    )
    stored_score_bytes: NonNegativeFloat = sourced(
        0, "derived", "bytes kept per score for the backward pass; none with fused attention"
    )
    gradient_bytes: PositiveFloat = sourced(
        2, "published", "per parameter, communicated and kept; 16-bit mixed precision"
    )
    float8_share: PositiveFloat = sourced(
        0.77,
        "fitted",
        "G0378 against G0377: share of the 8-bit peak against that of the 16-bit peak,"
        " casts and scaling included",
    )
    bucket_parameters: NonNegativeFloat = sourced(
        0, "derived", "in one collective; 0: those of a layer, which is a unit of FSDP"
    )
    gathers_matrices: bool = False
    """Whether ZeRO-3 gathers every weight matrix when its module runs, as DeepSpeed does, rather
    than as much as other collectives carry."""
    exposed_share: NonNegativeFloat = sourced(
        1.0,
        "derived",
        "of communication that computing does not hide: the rows of the first fit"
        " (G0007 to G0159) show none hidden, a free fit gives 1.14",
        le=1,
    )
    reduces_to_owner: bool = False
    """Whether ZeRO-1 and ZeRO-2 send each rank's slice of a bucket of gradients in a collective of
    its own, as DeepSpeed of 2022 does, rather than by one reduce-scatter."""


class TorchTitan(SoftwareSpec):
    """TorchTitan with torch.compile."""

    name: str = "TorchTitan, compiled"
    attention_speed: PositiveFloat = sourced(1.0, "published", "FlashAttention-2 of PyTorch")


class TorchTitanEager(TorchTitan):
    """TorchTitan without torch.compile."""

    name: str = "TorchTitan, eager"
    hidden_passes: PositiveFloat = sourced(
        242, "fitted", "G0376 against G0377: norms, rotary embedding and SwiGLU are not fused"
    )


class DeepSpeed(SoftwareSpec):
    """DeepSpeed ZeRO with fp16 weights and unfused attention; GenSLM of 2022."""

    name: str = "DeepSpeed"
    flash_attention: bool = False
    score_bytes: NonNegativeFloat = sourced(
        90.5, "fitted", "G0268 G0272 G0277 G0281 G0284 G0289 G0292: Selene, ZeRO-3"
    )
    stored_score_bytes: NonNegativeFloat = sourced(2, "derived", "fp16 probabilities")
    bucket_parameters: NonNegativeFloat = sourced(
        5e8, "published", "reduce_bucket_size and allgather_bucket_size in the code of GenSLM"
    )
    gathers_matrices: bool = True
    reduces_to_owner: bool = True


class AutocastDdp(DeepSpeed):
    """DDP with autocast and unfused attention; GenSLM of 2022."""

    name: str = "DDP, autocast"
    score_bytes: NonNegativeFloat = sourced(
        135, "fitted", "G0326 G0330 G0332 G0334 G0338: softmax in fp32, casts around it"
    )
    stored_score_bytes: NonNegativeFloat = sourced(6, "derived", "probabilities in fp32 and fp16")
    gradient_bytes: PositiveFloat = sourced(4, "published", "fp32 weights, fp32 gradients")


class GptNeox(SoftwareSpec):
    """GPT-NeoX of December 2022 with fused attention, no sequence parallelism, and ZeRO-1."""

    name: str = "GPT-NeoX"
    hidden_passes: PositiveFloat = sourced(
        150,
        "derived",
        "counted in its megatron/model/transformer.py: matrix operands 48; beside them 38 forward"
        " and 64 backward, of which 45 split, rotate, copy and join Q, K and V for the kernel",
    )
    whole_passes: PositiveFloat = sourced(
        37, "derived", "as of FSDP, and norms, biases and residual sums, which every rank repeats"
    )
    vocabulary_bytes: PositiveFloat = sourced(
        58, "derived", "counted in its megatron/mpu/cross_entropy.py, in fp32 and step by step"
    )
    bucket_parameters: NonNegativeFloat = sourced(
        5e8, "published", "reduce_bucket_size and allgather_bucket_size of Pythia up to 2.8B"
    )
    reduces_to_owner: bool = True


class Megatron(SoftwareSpec):
    """Megatron-Core with tensor, pipeline and data parallelism."""

    name: str = "Megatron"
    attention_speed: PositiveFloat = sourced(1.0, "published", "FlashAttention-2")
    exposed_share: NonNegativeFloat = sourced(
        0,
        "published",
        "source of G0402: data-parallel communication overlaps with computing",
        le=1,
    )
    matmul_speed: PositiveFloat = sourced(
        0.822, "fitted", "G0402: smaller matrix products, kernels that wait for each other"
    )


FSDP = SoftwareSpec()
TORCHTITAN = TorchTitan()
TORCHTITAN_EAGER = TorchTitanEager()
DEEPSPEED = DeepSpeed()
AUTOCAST_DDP = AutocastDdp()
GPT_NEOX = GptNeox()
MEGATRON = Megatron()
