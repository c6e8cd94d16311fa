"""Where the keys of the legacy layout stand in the Trainer layout (section 2.1)."""

from __future__ import annotations

from waferstream.config.key_paths import (
    BACKEND,
    CALLBACKS,
    CHECKPOINT,
    CLUSTER,
    GLOBAL_FLAGS,
    INIT,
    LOGGERS,
    LOGGING,
    LOOP,
    PRECISION,
    KeyPath,
)

MICRO_BATCH_SIZE = "csx.performance.micro_batch_size"


def _same(parent: KeyPath, names: str) -> dict[str, KeyPath]:
    return {name: (*parent, name) for name in names.split()}


def _flags(group: str, names: str) -> dict[str, KeyPath]:
    return {name: (*GLOBAL_FLAGS, f"csx.{group}.{name}") for name in names.split()}


MODEL: dict[str, KeyPath] = {
    "mixed_precision": (*PRECISION, "enabled"),
    "fp16_type": (*PRECISION, "fp16_type"),
}
"""Keys of ``model`` that are not about the model; all others go to ``init.model``."""

OPTIMIZER: dict[str, KeyPath] = {
    **_same(
        PRECISION,
        "loss_scaling_factor initial_loss_scale steps_per_increase min_loss_scale max_loss_scale"
        " max_gradient_norm max_gradient_value",
    ),
    **_same(LOOP, "grad_accum_steps"),
}
"""Keys of ``optimizer`` that are not arguments of its class."""

RUNCONFIG: dict[str, KeyPath] = {
    "target_device": (*BACKEND, "backend_type"),
    **_same(BACKEND, "compile_dir compile_only validate_only"),
    **_same(
        CLUSTER,
        "num_csx mgmt_address mgmt_namespace credentials_path mount_dirs python_paths"
        " num_workers_per_csx cbcore_image job_labels job_priority job_time_sec"
        " disable_version_check",
    ),
    "num_wgt_servers": (*CLUSTER, "max_wgt_servers"),
    "num_act_servers": (*CLUSTER, "max_act_per_csx"),
    **_same(INIT, "model_dir seed"),
    **_same(PRECISION, "precision_opt_level"),
    **_same(LOOP, "num_steps max_steps num_epochs steps_per_epoch eval_frequency eval_steps"),
    "checkpoint_steps": (*CHECKPOINT, "steps"),
    **_same(
        CHECKPOINT,
        "disable_strict_checkpoint_loading autoload_last_checkpoint save_initial_checkpoint",
    ),
    "max_checkpoints": (*CALLBACKS, "KeepNCheckpoints", "n"),
    **_same((*CALLBACKS, "LoadCheckpointStates"), "load_checkpoint_states"),
    "logging": (*LOGGING, "log_level"),
    **_same(LOGGING, "log_steps wsc_log_level enable_act_frequency"),
    **_flags("performance", "transfer_processes"),
    **_flags(
        "debug",
        "ini debug_args retrace_every_iteration lazy_initialization log_initialization drop_data"
        " fabric_type_blacklist compile_crd_memory_gi execute_crd_memory_gi wrk_memory_gi"
        " act_memory_gi cmd_memory_gi wgt_memory_gi chf_memory_gi",
    ),
    **_same((*LOGGERS, "TensorBoardLogger"), "summary_dir legacy_event_dirs"),
}
"""Keys of ``runconfig`` that move and keep their value."""

CHECKPOINT_PATH: dict[str, str] = {
    "fit": "ckpt_path",
    "validate": "ckpt_path",
    "validate_all": "ckpt_paths",
}
"""Where ``runconfig.checkpoint_path`` goes: the key in each mode's section."""

GPU_ONLY = (
    "enable_distributed",
    "main_process_id",
    "dist_backend",
    "init_method",
    "sync_batchnorm",
)
"""Keys of ``runconfig`` that say nothing to a CSX; dropped, as the vendor's client does."""

NOT_SUPPORTED: dict[str, tuple[str, ...]] = {
    "model": ("lora_params", "selective_grad", "compression"),
    "runconfig": (
        "debug_args_path",
        "log_input_summaries",
        "op_profiler_config",
        "dump_activations",
        "hf_cache_dir",
        "experimental",
    ),
}
"""Keys per section that become callbacks which WaferStream does not have."""
