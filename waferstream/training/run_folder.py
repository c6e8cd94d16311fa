"""The files of a run below ``model_dir`` (cluster_interface.md, section 4.6).

model_dir/
    checkpoint_<step>.mdl, checkpoints_index.yaml
    run_summary.json, loss.png            of the newest run
    latest_run.log -> <timestamp>/run.log
    <timestamp>/
        run.log                           everything the run said
        trainer_params.yaml, cluster.yaml the resolved configuration
        events.out.tfevents.*             for TensorBoard
"""

from __future__ import annotations

import logging
import sys
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from appliance.spec import ClusterSpec
from waferstream.config.params import Params
from waferstream.reports.files import naming, replacing
from wsc.core.config import dump_yaml
from wsc.core.errors import ConfigError


class _RunLog(logging.FileHandler):
    """A log file; a line that cannot be written is an OSError instead of a printed stack trace."""

    def emit(self, record: logging.LogRecord) -> None:
        with naming(Path(self.baseFilename)):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        error = sys.exception()
        assert error is not None, "called while one is handled"
        raise error

    def close(self) -> None:
        with suppress(OSError):  # was told when the line was written
            super().close()


class RunFolder:
    """Makes the folder of one run and keeps its log. Close it to release the log file."""

    def __init__(self, model_dir: Path) -> None:
        self.model_dir = model_dir
        try:
            self.path = _new_folder(model_dir)
            self._log = _RunLog(self.path / "run.log")
        except OSError as error:
            raise ConfigError(
                "the model folder cannot be written", where=str(model_dir), value=error.strerror
            ) from error
        self._log.setFormatter(logging.Formatter("%(asctime)s %(levelname)s: %(message)s"))
        logging.getLogger("waferstream").addHandler(self._log)
        self._point_latest()

    def save_configuration(self, params: Params, cluster: ClusterSpec) -> None:
        """Write what the run was really started with."""
        files = {
            "trainer_params.yaml": params.dump(),
            "cluster.yaml": cluster.model_dump(mode="json"),
        }
        for name, data in files.items():
            with replacing(self.path / name) as partial:
                partial.write_text(dump_yaml(data))

    def note(self, line: str) -> None:
        """Put a line into run.log alone; the terminal has it already."""
        self._log.emit(logging.makeLogRecord({"msg": line, "levelname": "INFO"}))

    def close(self) -> None:
        """Detach and close the log file."""
        logging.getLogger("waferstream").removeHandler(self._log)
        self._log.close()

    def _point_latest(self) -> None:
        link = self.model_dir / "latest_run.log"
        fresh = self.model_dir / ".latest_run.log"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(Path(self.path.name) / "run.log")
        fresh.rename(link)


def _new_folder(model_dir: Path) -> Path:
    """Named by the first millisecond, from now on, that no other run has taken."""
    while True:
        path = model_dir / datetime.now().strftime("%Y%m%d_%H%M%S_%f")[:-3]
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if not path.exists():  # it is model_dir that is in the way, a link to nowhere
                raise
        else:
            return path
