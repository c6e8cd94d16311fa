"""Create and write the folder of one run below ``model_dir``.

model_dir/
    checkpoint_<step>.mdl, checkpoints_index.yaml
    model.safetensors, config.json        weights of the last checkpoint, for transformers
    history.jsonl, loss.png               losses of all runs
    latest_run.log -> <timestamp>/run.log, run_summary.json -> <timestamp>/run_summary.json
    <timestamp>/
        run.log                           the command, and every line that it has shown
        report.html                       the run on one page
        run_summary.json, loss.png        results of the run
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
import os
import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Self

import torch

from appliance.spec import ClusterSpec
from cstorch.cluster.job_records import JobRecords
from waferstream.config.params import Params
from waferstream.core.config import dump_yaml
from waferstream.host.files import replacing, write_json
from waferstream.host.interrupts import ending
from waferstream.host.standard_streams import LINE_FORMAT, LogFile
from waferstream.host.words import in_words
from waferstream.reports.run.summary import RunSummary
from waferstream.training.results.claim import not_writable
from waferstream.version import VERSION

log = logging.getLogger("waferstream")


def writable_or_temporary(model_dir: Path) -> Path:
    """Return the folder for what an evaluation writes: model_dir, or another if it is read-only."""
    if not model_dir.is_dir() or os.access(model_dir, os.W_OK):
        return model_dir
    other = Path(tempfile.mkdtemp(prefix="waferstream-"))
    log.warning("%s is read-only: logs and results are in %s", model_dir, other)
    return other


class RunFolder:
    """Folder of one run with its log; leaving its block ends the log.

    Args:
        model_dir: The folder of the model, in which the new folder lies.
        command: The command line of the run, the first line of its log.
        link: The name of a link to the folder, which a run of several launches goes on with; none
            for a run that is a process of its own.
    """

    def __init__(self, model_dir: Path, command: str = "", link: str | None = None) -> None:
        self.model_dir = model_dir
        self._is_discarded = False
        self._links: dict[Path, Path | None] = {}  # what they led to before
        try:
            self.path = _new_folder(model_dir) if link is None else _linked(model_dir / link)
            (self.path / "run.log").touch()
        except OSError as error:
            raise not_writable(model_dir, error) from error
        self._log = LogFile(self.path / "run.log", LINE_FORMAT)
        self._log.addFilter(in_words("vendor"))  # as on the real machine, whatever is shown
        logging.getLogger("waferstream").addHandler(self._log)
        if command:
            self.note(f"Command: {command}")
        logs = self.model_dir / "cerebras_logs"
        self._made = [] if logs.exists() else [logs]
        logs.mkdir(exist_ok=True)
        self._point(self.model_dir / "latest_run.log", Path(self.path.name) / "run.log")
        self._point(logs / "latest", Path("..") / self.path.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        if error is not None:
            word = "Error" if isinstance(error, Exception) else ending(error)
            self.note(": ".join(filter(None, (word, str(error)))), "ERROR")
        self.close()

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

    def note(self, line: str, level: str = "INFO") -> None:
        """Append a line to run.log that the terminal already shows."""
        self._log.emit(logging.makeLogRecord({"msg": line, "levelname": level}))

    def point_to(self, name: str) -> None:
        """Let a link of the model's folder lead to a file of this run."""
        self._point(self.model_dir / name, Path(self.path.name) / name)

    def discard(self) -> None:
        """Note that the run had nothing to do: closing leaves the model's folder as it was."""
        self._is_discarded = True

    def close(self) -> None:
        """Detach the log file."""
        logging.getLogger("waferstream").removeHandler(self._log)
        if self._is_discarded:
            self._remove()

    def _remove(self) -> None:
        for link, before in self._links.items():
            if not link.is_symlink() or self.path.name not in link.readlink().parts:
                continue  # of a run that began meanwhile
            if before is None:
                link.unlink()
            else:
                _replace_link(link, before)
        for folder in self._made:
            folder.rmdir()
        shutil.rmtree(self.path)

    def _point(self, link: Path, target: Path) -> None:
        self._links.setdefault(link, link.readlink() if link.is_symlink() else None)
        _replace_link(link, target)


def _replace_link(link: Path, target: Path) -> None:
    """Let a link lead to a target, at once, also beside other processes that do so."""
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.rename(link)


def _linked(link: Path) -> Path:
    """Return the folder that a link leads to; without a link create both."""
    if not link.is_dir():
        _replace_link(link, Path(_new_folder(link.parent).name))
    return link.parent / link.readlink()


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
