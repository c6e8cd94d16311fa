"""Names of the vendor's earlier releases and of lessons about them, by what they are here.

``import_hook`` answers for them under the names of release 2.10, and for their packages
(``PACKAGES``). A name that later releases dropped is an error whose remedy is in ``REPLACED``.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import Any

PACKAGES = {
    "cerebras_pytorch": "cerebras.pytorch",  # releases 1.7 to 2.2
    "cerebras_pytorch.experimental": "cerebras.pytorch",  # releases 1.8 and 1.9
    "cerebras_appliance": "cerebras.appliance",  # releases 1.7 to 2.2
    "cerebras.framework.torch": "cerebras.pytorch",  # releases 1.2 to 1.7
}
"""Packages of earlier releases by the package of release 2.10 that has their modules."""

_EARLIER = "waferstream_compat.earlier"

ALIASES = {
    "cerebras.pytorch.compile_step": "cstorch.trace:trace",  # releases 1.8 and 1.9
    "cerebras.pytorch.utils.CSConfig": f"{_EARLIER}:CSConfig",  # releases 1.8 to 2.2
    "cerebras.pytorch.manual_seed": "torch:manual_seed",  # release 2.1
    "cerebras.pytorch.amp.use_bfloat16": f"{_EARLIER}:use_bfloat16",  # 1.8 to 2.0
    "cerebras.pytorch.summarize_scalar": f"{_EARLIER}:summarize_scalar",  # 1.9 to 2.2
    "cerebras.pytorch.scalar_summary": f"{_EARLIER}:summarize_scalar",  # 1.8
    "cerebras.pytorch.summarize_tensor": f"{_EARLIER}:summarize_tensor",  # 2.0 to 2.2
    "cerebras.pytorch.save_summaries": f"{_EARLIER}:save_summaries",  # 1.8 and 1.9
    "cerebras.pytorch.optim.configure_optimizer": f"{_EARLIER}:configure_optimizer",  # from 1.8
    "cerebras.pytorch.optim.configure_lr_scheduler": f"{_EARLIER}:configure_lr_scheduler",  # 1.8
    "cerebras.pytorch.optim.configure_scheduler": f"{_EARLIER}:configure_lr_scheduler",  # 2.3
    "cerebras.pytorch.utils.extract_loss": "cstorch.model_output:loss_in",  # 1.7 to 1.9
}
"""Names that mean the same as one of ours, as ``module:attribute``."""

REPLACED = {
    "cerebras.pytorch.configure": "pass cluster_config=ClusterConfig(...) to backend()",
    "cerebras.pytorch.Session": "call backend(), compile() and a traced step in a DataExecutor",
    "cerebras.pytorch.initialize": "call backend('CSX')",
    "cerebras.pytorch.module": "call compile(model, backend)",
    "cerebras.pytorch.dataloader": "give the loader to utils.data.DataExecutor",
    "cerebras.pytorch.saver": "call save() and load()",
    "cerebras.pytorch.core.cb_model": "call use_cs(), step_closure and functions of distributed",
    "cerebras.pytorch.optim.configure_param_groups": "give the optimizer its groups of parameters",
    "cerebras.pytorch.nn.DiceCELoss": "add the two losses with torch",
    "cerebras.pytorch.nn.StripPadding": "slice the tensor",
    "cerebras.pytorch.nn.Scope": "open name_scope(...) around the layers",
    "cerebras.pytorch.experimental.listener.create_listener": "call"
    " experimental.listener.register_traced_tensor_hook",
    "cerebras.pytorch.experimental.run_implicit_autoregressive_loop": "generate with plain PyTorch"
    " from a checkpoint",
    "cerebras.pytorch.profiler.tensorboard_trace_handler": "run with `waferstream exec --trace F`",
    "cerebras.pytorch.amp.disable_casts": "cast in the function, or enable_mixed_precision(False)",
    "cerebras.pytorch.sparse.configure_sparsity_optimizer": "call sparse.configure(...) and apply"
    " it to model and optimizer",
    "cerebras.pytorch.sparse.configure_sparsity_wrapper": "call sparse.configure(...) and apply it"
    " to model and optimizer",
    "cerebras.pytorch.sparse.SparsityWrapperOptimizer": "call sparse.configure(...) and apply it to"
    " model and optimizer",
    "cerebras.pytorch.sparse.map_sparsity_algorithm": "call sparse.configure(...)",
    "cerebras.appliance.DEFAULT_COMPILE_DIR": "pass compile_dir= to backend()",
    "cerebras.appliance.cs_run_config": "pass utils.CSConfig(...) to utils.data.DataExecutor",
    "cerebras.appliance.pb": "leave out messages to the vendor's servers",
}
"""What to write instead of a name, and of all below it, that has no counterpart."""


def canonical(name: str) -> str:
    """Return the name of release 2.10 for a name in a package of an earlier one."""
    for package in sorted(PACKAGES, key=len, reverse=True):
        if name == package or name.startswith(f"{package}."):
            return PACKAGES[package] + name.removeprefix(package)
    return name


def is_alias(name: str) -> bool:
    """Return whether an earlier release has a name that means one of ours."""
    return canonical(name) in ALIASES


def meaning(name: str) -> Any:
    """Return the object of an alias."""
    return resolve_name(ALIASES[canonical(name)])


def instead_of(name: str) -> str | None:
    """Return the replacement of a name that was dropped; None if it was never there."""
    place = canonical(name)
    while place and place not in REPLACED:
        place = place.rpartition(".")[0]
    return REPLACED.get(place)
