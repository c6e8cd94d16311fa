"""Specification of a training software stack, and presets with the source of each number.

Numbers are fitted where calibration rows of a stack exist, and shared between stacks otherwise;
never fitted per model or per row. A shared number has a name, and every preset states
all numbers, unless it is a variant of another stack. "Dao" is FlashAttention-2 (arXiv 2307.08691).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat

from waferstream.core.config import Config
from waferstream.machine.hardware.sourced import Preset, Sourced, preset


class SoftwareSpec(Config):
    """A training software stack: which kernels it fuses, and how it communicates."""

    name: str
    dispatch_s: NonNegativeFloat
    """Time that one thread of the framework adds to the launch of a kernel."""
    launches_every_op: bool
    """Whether every op of the model is a kernel of its own, as without a compiler."""
    flash_attention: bool
    """Whether attention is one fused kernel."""
    matmul_speed: PositiveFloat
    """Speed of matrix products relative to the GPU's ``matmul_share``."""
    attention_speed: PositiveFloat
    """Speed of fused attention relative to FlashAttention-2."""
    hidden_passes: PositiveFloat
    """16-bit reads and writes of one hidden vector per token and layer, forward and backward."""
    whole_passes: PositiveFloat
    """Those of ``hidden_passes`` that tensor parallelism does not divide."""
    vocabulary_bytes: PositiveFloat
    """Bytes moved per token and vocabulary entry."""
    score_bytes: NonNegativeFloat
    """Bytes moved per score of the attention matrix."""
    stored_score_bytes: NonNegativeFloat
    """Bytes kept per score for the backward pass."""
    gradient_bytes: PositiveFloat
    """Bytes of one gradient, communicated and kept."""
    float8_share: PositiveFloat
    """Share of the 8-bit peak relative to the share of the 16-bit peak."""
    bucket_parameters: NonNegativeFloat
    """Parameters in one collective; 0: those of a layer."""
    gathers_matrices: bool
    """Whether ZeRO-3 gathers each weight matrix when its module runs, as DeepSpeed does."""
    exposed_share: Annotated[NonNegativeFloat, Field(le=1)]
    """Share of communication that computing does not hide."""
    exposed_bytes_share: Annotated[PositiveFloat, Field(le=1)]
    """Share of the bytes of gathers and reductions that computing does not hide, though it hides no
    step of theirs."""
    reduces_to_owner: bool
    """Whether ZeRO-1 and ZeRO-2 send each rank's slice of a bucket of gradients in a collective of
    its own, as DeepSpeed of 2022 does, instead of one reduce-scatter."""


FP32_SCORE_BYTES = 34
"""Bytes per score that autocast adds to fp16: softmax in fp32, forward and backward, and casts."""

_EAGER_DISPATCH = Sourced(
    4.0e-6,
    "derived",
    "an op of eager PyTorch on a tiny tensor takes 7 us (flagos-ai/FlagGems, issue 4812), less the"
    " 3 us of its launch",
)
_COMPILED_DISPATCH = Sourced(
    5.2e-6,
    "published",
    "meta-pytorch/tritonbench, pull request 1016: a kernel of torch.compile takes 6.5 us to launch,"
    " of which cuLaunchKernel 1.3 us; without CUDA graphs",
)
_FULL_SPEED = Sourced(
    1.0, "derived", "1 by definition: the matmul shares of GPUs are fitted with this stack"
)
_SPLIT_PRODUCTS = Sourced(
    0.858,
    "fitted",
    "G0402 G0502 G0506 G0507 G0513 G0514 G0518: smaller matrix products, kernels that wait for each"
    " other",
)
_FIRST_FLASH = Sourced(
    0.5, "published", "first FlashAttention (Triton); Dao: the second is twice as fast"
)
_FUSED_PASSES = Sourced(
    105,
    "derived",
    "16-bit reads and writes of one hidden vector per token and layer, forward and backward:"
    " matrix operands 48, norms, GELU, residuals, copies and bias sums 57",
)
_SEQUENCE_PARALLEL_PASSES = Sourced(
    12,
    "derived",
    "passes that tensor parallelism does not divide, with sequence parallelism (Korthikanti et al.,"
    " 2022): inputs of the blocks and their partial results, three times, since the backward pass"
    " has two products for each",
)
_CAST_LOGITS = Sourced(
    42,
    "derived",
    "bytes moved per token and vocabulary entry: 16-bit logits and their gradient, cast to"
    " fp32 for the loss and back",
)
_NO_SCORES_MOVED = Sourced(
    0, "derived", "bytes moved per score of the attention matrix; none with fused attention"
)
_NO_SCORES_STORED = Sourced(
    0, "derived", "bytes kept per score for the backward pass; none with fused attention"
)
_GRADIENTS_16BIT = Sourced(
    2, "published", "per parameter, communicated and kept; 16-bit mixed precision"
)
_FLOAT8 = Sourced(
    0.843,
    "fitted",
    "G0378 G0502 G0506 G0507 G0513 G0514 G0518: share of the 8-bit peak against that of the 16-bit"
    " peak, casts and scaling included",
)
_UNFUSED_SCORES = Sourced(
    94.9,
    "fitted",
    "G0268 G0272 G0277 G0281 G0284 G0289 G0292 G0326 G0330 G0332 G0334 G0338: GenSLM on Selene",
)
_ONE_LAYER = Sourced(
    0, "derived", "parameters in one collective; 0: those of a layer, a unit of FSDP"
)
_NONE_HIDDEN = Sourced(
    1.0,
    "derived",
    "share of communication that compute does not hide: the rows of the first fit"
    " (G0007 to G0159) show none hidden, a free fit gives 1.14",
)

_ALL_BYTES = Sourced(1.0, "derived", "as many bytes as steps: no hidden part of its own")

_FSDP = preset(
    SoftwareSpec,
    "FSDP with fused attention, one unit per layer; LLM Foundry of 2023",
    name="FSDP",
    dispatch_s=_EAGER_DISPATCH,
    launches_every_op=True,
    flash_attention=True,
    matmul_speed=_FULL_SPEED,
    attention_speed=_FIRST_FLASH,
    hidden_passes=_FUSED_PASSES,
    whole_passes=_SEQUENCE_PARALLEL_PASSES,
    vocabulary_bytes=_CAST_LOGITS,
    score_bytes=_NO_SCORES_MOVED,
    stored_score_bytes=_NO_SCORES_STORED,
    gradient_bytes=_GRADIENTS_16BIT,
    float8_share=_FLOAT8,
    bucket_parameters=_ONE_LAYER,
    gathers_matrices=False,
    exposed_share=_NONE_HIDDEN,
    exposed_bytes_share=_ALL_BYTES,
    reduces_to_owner=False,
)
_TORCHTITAN = preset(
    SoftwareSpec,
    "TorchTitan with torch.compile",
    variant_of=_FSDP,
    name="TorchTitan, compiled",
    dispatch_s=_COMPILED_DISPATCH,
    launches_every_op=False,
    attention_speed=Sourced(1.0, "published", "FlashAttention-2 of PyTorch"),
)
_TORCHTITAN_TENSOR = preset(
    SoftwareSpec,
    "TorchTitan with tensor parallelism",
    variant_of=_TORCHTITAN,
    name="TorchTitan, tensor parallelism",
    matmul_speed=_SPLIT_PRODUCTS,
)
_TORCHTITAN_EAGER = preset(
    SoftwareSpec,
    "TorchTitan without torch.compile",
    variant_of=_TORCHTITAN,
    name="TorchTitan, eager",
    dispatch_s=_EAGER_DISPATCH,
    launches_every_op=True,
    hidden_passes=Sourced(
        238,
        "derived",
        "counted in its model of 2024: matrix operands 60, two norms in fp32 96, rotary embedding"
        " 25, SwiGLU 45, residuals 12",
    ),
)
_DEEPSPEED = preset(
    SoftwareSpec,
    "DeepSpeed ZeRO with fp16 weights and unfused attention; GenSLM of 2022",
    name="DeepSpeed",
    dispatch_s=_EAGER_DISPATCH,
    launches_every_op=True,
    flash_attention=False,
    matmul_speed=_FULL_SPEED,
    attention_speed=_FIRST_FLASH,
    hidden_passes=_FUSED_PASSES,
    whole_passes=_SEQUENCE_PARALLEL_PASSES,
    vocabulary_bytes=_CAST_LOGITS,
    score_bytes=_UNFUSED_SCORES,
    stored_score_bytes=Sourced(2, "derived", "fp16 probabilities"),
    gradient_bytes=_GRADIENTS_16BIT,
    float8_share=_FLOAT8,
    bucket_parameters=Sourced(
        5e8, "published", "reduce_bucket_size and allgather_bucket_size in the code of GenSLM"
    ),
    gathers_matrices=True,
    exposed_share=_NONE_HIDDEN,
    exposed_bytes_share=Sourced(
        0.252,
        "fitted",
        "G0268 G0272 G0277 G0281 G0284 G0289 G0292: it gathers ahead, launched step by step",
    ),
    reduces_to_owner=True,
)
_AUTOCAST_DDP = preset(
    SoftwareSpec,
    "DDP with autocast and unfused attention; GenSLM of 2022",
    variant_of=_DEEPSPEED,
    name="DDP, autocast",
    score_bytes=Sourced(
        _UNFUSED_SCORES.value + FP32_SCORE_BYTES,
        "derived",
        "those of DEEPSPEED, 16 more forward and 18 backward: softmax in fp32, casts around it",
    ),
    stored_score_bytes=Sourced(6, "derived", "probabilities in fp32 and fp16"),
    hidden_passes=Sourced(
        150,
        "derived",
        "those of DEEPSPEED, 22 more forward and 23 backward: residuals, norms and rotary embedding"
        " in fp32, casts around them",
    ),
    gradient_bytes=Sourced(4, "published", "fp32 weights, fp32 gradients"),
)
_GPT_NEOX = preset(
    SoftwareSpec,
    "GPT-NeoX of December 2022 with fused attention, no sequence parallelism, and ZeRO-1",
    name="GPT-NeoX",
    dispatch_s=_EAGER_DISPATCH,
    launches_every_op=True,
    flash_attention=True,
    matmul_speed=_FULL_SPEED,
    attention_speed=_FIRST_FLASH,
    hidden_passes=Sourced(
        150,
        "derived",
        "counted in its megatron/model/transformer.py: matrix operands 48, plus 38 forward"
        " and 64 backward, of which 45 split, rotate, copy and join Q, K and V for the kernel",
    ),
    whole_passes=Sourced(
        37, "derived", "those of FSDP, plus norms, biases and residual sums of every rank"
    ),
    vocabulary_bytes=Sourced(
        58, "derived", "counted in its megatron/mpu/cross_entropy.py, in fp32 and step by step"
    ),
    score_bytes=_NO_SCORES_MOVED,
    stored_score_bytes=_NO_SCORES_STORED,
    gradient_bytes=_GRADIENTS_16BIT,
    float8_share=_FLOAT8,
    bucket_parameters=Sourced(
        5e8, "published", "reduce_bucket_size and allgather_bucket_size of Pythia up to 2.8B"
    ),
    gathers_matrices=False,
    exposed_share=_NONE_HIDDEN,
    exposed_bytes_share=_ALL_BYTES,
    reduces_to_owner=True,
)
_GPT_NEOX_TENSOR = preset(
    SoftwareSpec,
    "GPT-NeoX with tensor parallelism",
    variant_of=_GPT_NEOX,
    name="GPT-NeoX, tensor parallelism",
    matmul_speed=_SPLIT_PRODUCTS,
)
_MEGATRON = preset(
    SoftwareSpec,
    "Megatron-Core with tensor, pipeline and data parallelism",
    name="Megatron",
    dispatch_s=_EAGER_DISPATCH,
    launches_every_op=False,
    flash_attention=True,
    matmul_speed=_SPLIT_PRODUCTS,
    attention_speed=Sourced(
        1.75,
        "published",
        "FlashAttention-3 (arXiv 2407.08608), as fast as that of cuDNN: 1.5 to 2 times as fast as"
        " FlashAttention-2 on an H100; the middle",
    ),
    hidden_passes=_FUSED_PASSES,
    whole_passes=_SEQUENCE_PARALLEL_PASSES,
    vocabulary_bytes=_CAST_LOGITS,
    score_bytes=_NO_SCORES_MOVED,
    stored_score_bytes=_NO_SCORES_STORED,
    gradient_bytes=_GRADIENTS_16BIT,
    float8_share=_FLOAT8,
    bucket_parameters=_ONE_LAYER,
    gathers_matrices=False,
    exposed_share=Sourced(
        0, "published", "source of G0402: data-parallel communication overlaps with computing"
    ),
    exposed_bytes_share=_ALL_BYTES,
    reduces_to_owner=False,
)

PRESETS: dict[str, Preset[SoftwareSpec]] = {
    "FSDP": _FSDP,
    "TORCHTITAN": _TORCHTITAN,
    "TORCHTITAN_EAGER": _TORCHTITAN_EAGER,
    "DEEPSPEED": _DEEPSPEED,
    "AUTOCAST_DDP": _AUTOCAST_DDP,
    "GPT_NEOX": _GPT_NEOX,
    "MEGATRON": _MEGATRON,
    "TORCHTITAN_TENSOR": _TORCHTITAN_TENSOR,
    "GPT_NEOX_TENSOR": _GPT_NEOX_TENSOR,
}
"""Every preset by the name of its constant, for the list of sources."""

FSDP = _FSDP.spec
TORCHTITAN = _TORCHTITAN.spec
TORCHTITAN_TENSOR = _TORCHTITAN_TENSOR.spec
TORCHTITAN_EAGER = _TORCHTITAN_EAGER.spec
DEEPSPEED = _DEEPSPEED.spec
AUTOCAST_DDP = _AUTOCAST_DDP.spec
GPT_NEOX = _GPT_NEOX.spec
GPT_NEOX_TENSOR = _GPT_NEOX_TENSOR.spec
MEGATRON = _MEGATRON.spec
