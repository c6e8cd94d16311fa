"""One run from start to finish; backend, cluster and files are closed whatever happens."""

from __future__ import annotations

import logging
from pathlib import Path

import cstorch
from appliance.spec import ClusterSpec, load_cluster
from cstorch.backend import Backend
from modelzoo.cli.arguments import Arguments
from modelzoo.config.callbacks import CheckLoss
from modelzoo.config.params import Params
from modelzoo.trainer.run_folder import RunFolder
from modelzoo.trainer.trainer import Outcome, Trainer

log = logging.getLogger("waferstream")


def run_session(arguments: Arguments, params: Params) -> None:
    """Do what the command line asks for; WaferStreamError if it fails."""
    cluster = load_cluster(arguments.cluster) if arguments.cluster else ClusterSpec()
    folder = RunFolder(params.trainer.init.model_dir)
    try:
        folder.save_configuration(params, cluster)
        backend = make_backend(params, cluster, arguments.trace)
        try:
            outcome = _run_mode(arguments.mode, Trainer(params, backend, []))
            if arguments.trace is not None and backend.cluster is not None:
                backend.write_trace(arguments.trace)
                log.info("Trace of both clocks: %s (open it in ui.perfetto.dev)", arguments.trace)
        finally:
            backend.shutdown()
    finally:
        folder.close()
    if outcome.weights_sha256 is not None:
        print(f"Weights SHA-256: {outcome.weights_sha256}", flush=True)


def make_backend(params: Params, cluster: ClusterSpec, trace: Path | None) -> Backend:
    """The backend that a configuration asks for."""
    init = params.trainer.init
    job = init.backend.cluster_config
    precision = init.precision
    cstorch.amp.enable_mixed_precision(precision.enabled)
    cstorch.amp.set_half_dtype(precision.fp16_type)
    cstorch.backends.csx.precision.optimization_level = precision.precision_opt_level
    return cstorch.backend(
        "CSX",
        cluster_config=cstorch.ClusterConfig(
            num_csx=job.num_csx,
            max_wgt_servers=job.max_wgt_servers,
            num_workers_per_csx=job.num_workers_per_csx,
            job_labels=job.job_labels,
            job_time_sec=job.job_time_sec,
            cluster=cluster,
            trace_path=trace,
        ),
        compile_dir=init.backend.compile_dir or init.model_dir / "cached_compile",
        compile_only=init.backend.compile_only,
        validate_only=init.backend.validate_only,
        seed=init.seed,
        check_loss=any(isinstance(callback, CheckLoss) for callback in init.callbacks),
    )


def _run_mode(mode: str, trainer: Trainer) -> Outcome:
    if mode in ("train", "train_and_eval"):
        return trainer.fit(evaluates=mode == "train_and_eval")
    return trainer.validate() if mode == "eval" else trainer.validate_all()
