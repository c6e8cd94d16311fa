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

import fcntl
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import torch

from appliance.spec import ClusterSpec
from cstorch.cluster.job_records import JobRecords
from waferstream.config.params import Params
from waferstream.reports.summary import RunSummary
from wsc.core.config import dump_yaml
from wsc.core.errors import ConfigError
from wsc.core.files import replacing, write_json
from wsc.version import VERSION

log = logging.getLogger("waferstream")


class _RunLog(logging.FileHandler):
    """Log file that says once on the terminal that its lines cannot be written."""

    _has_failed = False

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        if not self._has_failed:
            self._has_failed = True
            reason = getattr(sys.exception(), "strerror", None) or sys.exception()
            print(f"Warning: {self.baseFilename}: {reason}. The run goes on.", file=sys.stderr)

    def close(self) -> None:
        with suppress(OSError):  # reported when the line was written
            super().close()


@contextmanager
def claimed(model_dir: Path) -> Iterator[None]:
    """Claim a folder for one run that trains; the claim ends with the process.

    Raises:
        ConfigError: Another run trains in it.
    """
    descriptor = os.open(model_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise ConfigError(
            "one run at a time can train in a model_dir",
            code="model-dir-in-use",
            where=str(model_dir),
            rule="runs in one folder would continue from, and remove, each other's checkpoints",
            remedy="wait for the other run, or name another model_dir",
        ) from error
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # children forked meanwhile hold the file, too
        os.close(descriptor)


def writable_or_temporary(model_dir: Path) -> Path:
    """Return the folder for what an evaluation writes: model_dir, or another if it is read-only."""
    if not model_dir.is_dir() or os.access(model_dir, os.W_OK):
        return model_dir
    other = Path(tempfile.mkdtemp(prefix="waferstream-"))
    log.warning("%s is read-only: logs and results are in %s", model_dir, other)
    return other


class RunFolder:
    """Folder of one run with its log; close it to release the log file."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = model_dir
        try:
            self.path = _new_folder(model_dir)
            self._log = _RunLog(self.path / "run.log")
        except OSError as error:
            raise _not_writable(model_dir, error) from error
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


def _not_writable(model_dir: Path, error: OSError) -> ConfigError:
    return ConfigError(
        "model_dir must be writable",
        code="model-dir-not-writable",
        where=str(model_dir),
        value=error.strerror,
    )


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
