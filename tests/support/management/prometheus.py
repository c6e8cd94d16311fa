"""A Prometheus that a test starts in a scratch folder, lets scrape one address, and asks."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from tests.support.host.sockets import listening

CONFIG = Path(__file__).resolve().parents[3] / "deploy" / "prometheus.yaml"
WAIT_S = 30.0
NEEDS_PROMETHEUS = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed (apt)"
)

_LOOK_S = 0.1


class Prometheus:
    """A server of Prometheus at an address of this host."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return what an expression is at this moment: curves with a label set and a value."""
        answer = self._get(f"/api/v1/query?{urlencode({'query': expression})}")
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def wait_for(self, expression: str, limit_s: float = WAIT_S) -> list[dict[str, Any]]:
        """Wait until an expression has data; return it."""
        end_s = time.monotonic() + limit_s
        while not (found := self._ask_early(expression)):
            assert time.monotonic() < end_s, f"{expression} has no data"
            time.sleep(_LOOK_S)
        return found

    def _ask_early(self, expression: str) -> list[dict[str, Any]]:
        try:
            return self.ask(expression)
        except OSError:  # it does not listen yet, or is not ready
            return []

    def _get(self, path: str) -> Any:
        with urlopen(self._url + path, timeout=WAIT_S) as answer:
            return json.load(answer)


@contextmanager
def prometheus(folder: Path, url: str, token: str) -> Iterator[Prometheus]:
    """Run Prometheus with the configuration of ``deploy``, which scrapes a management each second."""
    config = yaml.safe_load(CONFIG.read_text("utf-8"))
    config["global"]["scrape_interval"] = "1s"
    (folder / "token").write_text(token, "utf-8")
    scrape = config["scrape_configs"][0]
    scrape["static_configs"] = [{"targets": [url.removeprefix("http://")]}]
    scrape["authorization"]["credentials_file"] = str(folder / "token")
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config), "utf-8")
    words = [
        "prometheus", f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}", "--web.listen-address=127.0.0.1:0",
    ]  # fmt: skip
    with (
        (folder / "prometheus.log").open("wb") as log,
        subprocess.Popen(words, stdout=log, stderr=log) as process,
    ):
        try:
            yield Prometheus(f"http://127.0.0.1:{_port(process.pid)}")
        finally:
            process.terminate()
            process.wait(WAIT_S)


def _port(pid: int) -> int:
    """Return the port on which a process listens, once it does."""
    end_s = time.monotonic() + WAIT_S
    while not (found := listening([pid])):
        assert time.monotonic() < end_s, "Prometheus does not listen"
        time.sleep(_LOOK_S)
    return found.pop()[1]
