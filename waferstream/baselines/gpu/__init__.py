"""GPU clusters for comparison: training steps, scaling curves and inference.

A step is compute, exposed communication, pipeline bubble and optimizer (``step``); compute is
arithmetic at a sustained share of the peak plus memory traffic (``compute``), communication is
bytes over bandwidth plus latency (``communication``). Chips (``chips``), networks (``clusters``)
and software stacks (``software``) are tables of presets. Fitted on the calibration rows of the GPU
table only.
"""

from waferstream.baselines.gpu.chips import A100_40, A100_80, B200, H100, H100_500W, H200
from waferstream.baselines.gpu.clusters import (
    DGX_A100,
    DGX_B200,
    DGX_H100,
    DGX_H200,
    HOST,
    NETWORK_50G,
    NETWORK_200G,
    NETWORK_400G,
    WAFERLLM_TESTBED,
)
from waferstream.baselines.gpu.curve import (
    KINDS,
    CurvePolicy,
    GpuMemory,
    GpuPoint,
    gpu_curve,
    training_memory,
)
from waferstream.baselines.gpu.hardware import GpuClusterSpec, GpuSpec, HostSpec, NetworkSpec
from waferstream.baselines.gpu.software import (
    AUTOCAST_DDP,
    DEEPSPEED,
    FSDP,
    GPT_NEOX,
    GPT_NEOX_TENSOR,
    MEGATRON,
    TORCHTITAN,
    TORCHTITAN_EAGER,
    TORCHTITAN_TENSOR,
    SoftwareSpec,
)
from waferstream.baselines.gpu.step import StepTime, model_flops_utilisation, step_time
from waferstream.baselines.gpu.workload import Parallelism, Recompute, Sharding, Workload

__all__ = [
    "A100_40",
    "A100_80",
    "AUTOCAST_DDP",
    "B200",
    "DEEPSPEED",
    "DGX_A100",
    "DGX_B200",
    "DGX_H100",
    "DGX_H200",
    "FSDP",
    "GPT_NEOX",
    "GPT_NEOX_TENSOR",
    "H100",
    "H100_500W",
    "H200",
    "HOST",
    "KINDS",
    "MEGATRON",
    "NETWORK_50G",
    "NETWORK_200G",
    "NETWORK_400G",
    "TORCHTITAN",
    "TORCHTITAN_EAGER",
    "TORCHTITAN_TENSOR",
    "WAFERLLM_TESTBED",
    "CurvePolicy",
    "GpuClusterSpec",
    "GpuMemory",
    "GpuPoint",
    "GpuSpec",
    "HostSpec",
    "NetworkSpec",
    "Parallelism",
    "Recompute",
    "Sharding",
    "SoftwareSpec",
    "StepTime",
    "Workload",
    "gpu_curve",
    "model_flops_utilisation",
    "step_time",
    "training_memory",
]
