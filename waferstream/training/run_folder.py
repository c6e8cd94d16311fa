"""Create and write the folder of one run below ``model_dir``.

model_dir/
    checkpoint_<step>.mdl, checkpoints_index.yaml
    run_summary.json, loss.png            of the newest run
    latest_run.log -> <timestamp>/run.log
    <timestamp>/
        run.log                           all log lines
        trainer_params.yaml, cluster.yaml the resolved configuration
        events.out.tfevents.*             for TensorBoard
        run_meta.json                     compiles and executions, with times, hash and systems
        performance.json                  throughput, measured and emulated
        executors/000001, ..., latest     a folder for every loop
        roles/<role>.log                  of the roles that --wsc_log_level names
    cerebras_logs/latest -> ../<timestamp>
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import torch

from appliance.spec import ClusterSpec
from cstorch.cluster.job_records import JobRecords
from waferstream.config.params import Params
from waferstream.reports.summary import RunSummary
from wsc.core.config import dump_yaml
from wsc.core.errors import ConfigError
from wsc.core.files import naming, replacing, write_json
from wsc.version import VERSION


class _RunLog(logging.FileHandler):
    """Log file that raises OSError when a line cannot be written."""

    def emit(self, record: logging.LogRecord) -> None:
        with naming(Path(self.baseFilename)):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        error = sys.exception()
        assert error is not None, "called while one is handled"
        raise error

    def close(self) -> None:
        with suppress(OSError):  # reported when the line was written
            super().close()


class RunFolder:
    """Folder of one run with its log; close it to release the log file."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = model_dir
        try:
            self.path = _new_folder(model_dir)
            self._log = _RunLog(self.path / "run.log")
        except OSError as error:
            raise ConfigError(
                "model_dir must be writable",
                code="model-dir-not-writable",
                where=str(model_dir),
                value=error.strerror,
            ) from error
        self._log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s: %(message)s"))
        logging.getLogger("waferstream").addHandler(self._log)
        self._point_latest()

    def save_configuration(self, params: Params, cluster: ClusterSpec) -> None:
        """Write the resolved configuration of the run."""
        files = {
            "trainer_params.yaml": params.dump(),
            "cluster.yaml": cluster.model_dump(mode="json"),
        }
        for name, data in files.items():
            with replacing(self.path / name) as partial:
                partial.write_text(dump_yaml(data))

    def save_jobs(self, jobs: JobRecords) -> None:
        """Write which compiles and executions the run had, and by which software."""
        versions = {"waferstream": VERSION, "torch": torch.__version__}
        data = {
            "compile_jobs": jobs.compile_jobs,
            "execute_jobs": jobs.execute_jobs,
            "image_build_jobs": [],
            "software_versions": versions,
            "log_path": str(self.path / "run.log"),
        }
        write_json(self.path / "run_meta.json", data)

    def save_performance(self, summary: RunSummary) -> None:
        """Write the throughput of the run; None where nothing was trained."""
        data = {
            "global_step": summary.last_step,
            "measured": summary.measured,
            "emulated": summary.emulated,
        }
        write_json(self.path / "performance.json", data)

    def note(self, line: str) -> None:
        """Append a line to run.log that the terminal already shows."""
        self._log.emit(logging.makeLogRecord({"msg": line, "levelname": "INFO"}))

    def close(self) -> None:
        """Detach and close the log file."""
        logging.getLogger("waferstream").removeHandler(self._log)
        self._log.close()

    def _point_latest(self) -> None:
        logs = self.model_dir / "cerebras_logs"
        logs.mkdir(exist_ok=True)
        _point(self.model_dir / "latest_run.log", Path(self.path.name) / "run.log")
        _point(logs / "latest", Path("..") / self.path.name)


def _point(link: Path, target: Path) -> None:
    """Let a link lead to a target, at once."""
    fresh = link.with_name(f".{link.name}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.rename(link)


def _new_folder(model_dir: Path) -> Path:
    """Create a folder named by the first free millisecond."""
    while True:
        path = model_dir / datetime.now().strftime("%Y%m%d_%H%M%S_%f")[:-3]
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if not path.exists():  # model_dir itself is a dangling link
                raise
        else:
            return path
