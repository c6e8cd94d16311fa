"""Op kinds: which aten ops have a kernel, and which cost function each belongs to.

Kinds: matmul, convolution, attention, norm, softmax, reduction, window (pooling and resampling),
gather, random, copy, elementwise, view. An op without a kind has no kernel: it is a compile error,
not a slow path. The page Ops of the site lists all ops that run (``scripts/op_table.py``).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

_NAMES_OF_KIND = {
    "matmul": "mm addmm bmm baddbmm addbmm matmul linear dot mv _grouped_mm "
    "linalg_solve_triangular",
    "convolution": "convolution convolution_backward",
    "attention": "_scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "norm": "native_layer_norm native_layer_norm_backward _fused_rms_norm "
    "_fused_rms_norm_backward native_group_norm native_group_norm_backward "
    "native_batch_norm native_batch_norm_backward _weight_norm_interface "
    "_weight_norm_interface_backward",
    "softmax": "_softmax _safe_softmax _softmax_backward_data _log_softmax "
    "_log_softmax_backward_data logsumexp nll_loss_forward nll_loss_backward "
    "nll_loss2d_forward nll_loss2d_backward",
    "reduction": "sum mean amax amin max min argmax argmin any all prod var var_mean cumsum "
    "norm linalg_vector_norm std topk sort mse_loss cumprod logcumsumexp cummax cummin aminmax "
    "kthvalue median nanmedian mode histc trace renorm std_mean smooth_l1_loss huber_loss "
    "soft_margin_loss binary_cross_entropy binary_cross_entropy_with_logits multi_margin_loss "
    "multilabel_margin_loss_forward _cdist_forward _cdist_backward _pdist_forward "
    "_pdist_backward _trilinear",
    "window": "avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward "
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d "
    "_adaptive_avg_pool3d_backward max_pool2d_with_indices max_pool3d_with_indices "
    "adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d "
    "im2col col2im grid_sampler_2d grid_sampler_2d_backward grid_sampler_3d "
    "grid_sampler_3d_backward upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d "
    "upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward "
    "_upsample_nearest_exact1d _upsample_nearest_exact1d_backward _upsample_nearest_exact2d "
    "_upsample_nearest_exact2d_backward _upsample_nearest_exact3d "
    "_upsample_nearest_exact3d_backward upsample_linear1d upsample_linear1d_backward "
    "upsample_bilinear2d upsample_bilinear2d_backward upsample_bicubic2d "
    "upsample_bicubic2d_backward upsample_trilinear3d upsample_trilinear3d_backward "
    "_upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa "
    "_upsample_bicubic2d_aa_backward",
    "gather": "embedding embedding_dense_backward index index_select gather scatter scatter_add "
    "index_put index_put_ index_add scatter_ scatter_add_ new_zeros select_backward "
    "slice_backward take_along_dim take put index_fill index_fill_ index_copy "
    "index_copy_ index_add_ index_reduce masked_scatter masked_scatter_backward scatter_reduce "
    "scatter_reduce_ searchsorted bucketize _embedding_bag _embedding_bag_forward_only "
    "_embedding_bag_backward _embedding_bag_dense_backward "
    "_embedding_bag_per_sample_weights_backward diagonal_backward unfold_backward "
    "max_pool2d_with_indices_backward max_pool3d_with_indices_backward "
    "adaptive_max_pool2d_backward adaptive_max_pool3d_backward fractional_max_pool2d_backward "
    "fractional_max_pool3d_backward max_unpool2d max_unpool3d reflection_pad1d_backward "
    "reflection_pad2d_backward reflection_pad3d_backward replication_pad1d_backward "
    "replication_pad2d_backward replication_pad3d_backward",
    "copy": "clone _to_copy cat stack copy_ contiguous repeat constant_pad_nd roll flip "
    "tril triu fill_ zero_ split_with_sizes_copy copy reflection_pad1d reflection_pad2d "
    "reflection_pad3d replication_pad1d replication_pad2d replication_pad3d pixel_shuffle "
    "pixel_unshuffle channel_shuffle native_channel_shuffle diag_embed slice_scatter "
    "select_scatter diagonal_scatter new_empty_strided _functional_assert_async",
    "elementwise": "full full_like zeros zeros_like ones ones_like empty empty_like arange "
    "scalar_tensor lift_fresh_copy lift_fresh gelu_backward silu_backward threshold_backward "
    "tanh_backward sigmoid_backward where masked_fill masked_fill_ new_full new_ones new_empty "
    "eye linspace tril_indices native_dropout_backward mse_loss_backward triu_indices logspace "
    "elu_backward glu glu_backward hardshrink_backward hardsigmoid_backward hardswish "
    "hardswish_backward hardtanh_backward leaky_relu_backward log_sigmoid_forward "
    "log_sigmoid_backward mish_backward _prelu_kernel _prelu_kernel_backward "
    "rrelu_with_noise_backward softplus_backward softshrink_backward smooth_l1_loss_backward "
    "huber_loss_backward soft_margin_loss_backward binary_cross_entropy_backward "
    "multi_margin_loss_backward multilabel_margin_loss_backward floor_divide linalg_cross addr "
    "polar",
    "view": "_unsafe_view unbind split chunk unsafe_split unsafe_split_with_sizes unsafe_chunk",
    "random": "bernoulli_ bernoulli native_dropout rand_like randn_like rand randn randint "
    "randperm multinomial normal normal_ uniform_ exponential_ rrelu_with_noise",
}
KIND_OF = {name: kind for kind, names in _NAMES_OF_KIND.items() for name in names.split()}
"""Kind of each supported aten op, but for pointwise ops (elementwise) and views."""

RANDOM_OPS = frozenset(_NAMES_OF_KIND["random"].split())

_MASK = "multiply by the mask or use torch.where(mask, x, 0)"
_MATRIX_FUNCTION = (
    "compute it in the input function; for a normalization write the iteration with torch.bmm"
)
_FOURIER = "multiply by matrices of cosines and sines (torch.matmul), or use the input function"
_RECURRENT = "write the loop over time with nn.Linear, or use attention or a convolution"

REMEDIES = {
    "_local_scalar_dense": "return the tensor from the step and read it in a "
    "cstorch.step_closure; choose between values with torch.where",
    "nonzero": f"{_MASK} instead of indexing by it",
    "masked_select": _MASK,
    "_unique2": "compute unique values in the input function, before the batch is streamed",
    "unique_consecutive": "compute unique values in the input function",
    "bincount": "use torch.nn.functional.one_hot(x, n).sum(0) with a fixed n, or torch.histc",
    "repeat_interleave": "pass a fixed integer instead of a tensor of repeats",
    "_fft_r2c": _FOURIER,
    "_fft_c2c": _FOURIER,
    "_fft_c2r": _FOURIER,
    "linalg_inv_ex": _MATRIX_FUNCTION,
    "_linalg_solve_ex": _MATRIX_FUNCTION,
    "linalg_cholesky_ex": _MATRIX_FUNCTION,
    "linalg_qr": _MATRIX_FUNCTION,
    "_linalg_svd": _MATRIX_FUNCTION,
    "_linalg_eigh": _MATRIX_FUNCTION,
    "_thnn_fused_gru_cell": _RECURRENT,
    "_thnn_fused_lstm_cell": _RECURRENT,
}
"""What to write instead of an op that has no kernel, by the op's name."""


def op_name(node: fx.Node) -> str:
    """Return the name of an op as in torch.ops.aten, without overload, or of a keyed kernel."""
    packet = getattr(node.target, "overloadpacket", node.target)
    return str(getattr(packet, "__name__", node.target))


def op_kind(node: fx.Node) -> str | None:
    """Return the kind of a call node, or None if the op has no kernel."""
    target: Any = node.target
    if target is operator.getitem or isinstance(node.meta.get("val"), torch.SymInt):
        return "view"
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "waferstream_kind", None)
    return kind_of_overload(target)


def kind_of_overload(target: torch._ops.OpOverload[Any, Any]) -> str | None:
    """Return the kind of an aten op, or None if the op has no kernel."""
    name = target.overloadpacket.__name__
    if _shape_depends_on_values(target, name):
        return None
    if target.is_view:
        return "view"
    if target.namespace == "waferstream":  # of inference (waferstream.compiler.extend)
        return "attention" if name == "cached_attention" else "matmul"
    kind = KIND_OF.get(name) or ("elementwise" if torch.Tag.pointwise in target.tags else None)
    # A random op without a keyed kernel would draw other numbers on every cluster.
    draws = torch.Tag.nondeterministic_seeded in target.tags and kind not in {"random", "attention"}
    return None if draws else kind or _kind_of_form_out_of_place(target, name)


def _kind_of_form_out_of_place(target: torch._ops.OpOverload[Any, Any], name: str) -> str | None:
    """Return the kind of ``hardswish`` for ``hardswish_``: torch tags some ops in one form only."""
    packet = getattr(torch.ops.aten, name.removesuffix("_"), None)
    if not name.endswith("_") or not isinstance(packet, torch._ops.OpOverloadPacket):
        return None
    form = getattr(packet, target._overloadname, None)
    return None if form is None else kind_of_overload(form)


def _shape_depends_on_values(target: torch._ops.OpOverload[Any, Any], name: str) -> bool:
    # aten.index has the tag because of boolean masks, which capture refuses.
    dynamic = torch.Tag.dynamic_output_shape in target.tags and name != "index"
    return dynamic or torch.Tag.data_dependent_output in target.tags
