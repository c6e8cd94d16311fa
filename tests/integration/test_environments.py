"""Runs on a private Ray in environments of clusters, containers and shared hosts.

What the environment says about other Rays, about the web, or about the size of this host must not
reach a private Ray: the run ends with the weights of a run in one process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.host.users import needs_root
from tests.support.runs.tiny_run import digest_of, write_run
from waferstream.cli.main import main

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

_RUN = Path(__file__).parents[2] / "run.py"
_NOBODY_LISTENS = "http://127.0.0.1:9"

PROXIES = dict.fromkeys(
    ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy"),
    _NOBODY_LISTENS,
)
OTHER_RAY = {
    "RAY_ADDRESS": "127.0.0.1:9",
    "RAY_AUTH_MODE": "disabled",
    "RAY_AUTH_TOKEN_PATH": "/no/such/token",
    "RAY_NAMESPACE": "other",
}
FEW_FILES = "ulimit -n 256"
SMALL_SHM = "mount -t tmpfs -o size=64m tmpfs /dev/shm"


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digest of the weights of a run in this process."""
    folder = tmp_path_factory.mktemp("expected")
    assert main(write_run(folder), home=folder) == 0
    summary = json.loads((folder / "model_dir" / "run_summary.json").read_text())
    return str(summary["weights_sha256"])


def digest_in(
    folder: Path,
    environment: dict[str, str],
    before: str = "true",
    python: tuple[str, ...] = (),
    namespaces: tuple[str, ...] = (),
) -> str:
    """Return the digest of a run on Ray.

    Args:
        folder: Of the run.
        environment: Variables that are added to the environment.
        before: A command of the shell that starts the run.
        python: Flags of Python.
        namespaces: Words of a command that starts the shell.
    """
    command = [sys.executable, *python, str(_RUN), *write_run(folder, kind="ray"), "--num_csx=2"]
    shell = ["bash", "-c", f'{before} && exec "$@"', "bash", *command]
    done = subprocess.run(
        [*namespaces, *shell],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return digest_of(done.stdout)


@contextmanager
def another_ray() -> Iterator[None]:
    """Another Ray of this user on the host, in a folder whose path leaves room for sockets."""
    program = (
        "import sys, ray\n"
        "ray.init(include_dashboard=False, _temp_dir=sys.argv[1], num_cpus=1)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    with (
        TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        subprocess.Popen(
            [sys.executable, "-c", program, folder], stdin=pipe, stdout=pipe, text=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
        assert process.stdin is not None
        process.stdin.close()


def test_environment_of_others_changes_nothing(expected: str, tmp_path: Path) -> None:
    """Proxies, another Ray, few files, and Python without assertions, all at once."""
    assert digest_in(tmp_path, PROXIES | OTHER_RAY, FEW_FILES, ("-O",)) == expected


@pytest.mark.nightly
@pytest.mark.parametrize("environment", [PROXIES, OTHER_RAY], ids=["proxies", "other Ray"])
def test_variables_of_others_change_nothing(
    expected: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    assert digest_in(tmp_path, environment) == expected


@pytest.mark.nightly
def test_few_files_are_enough(expected: str, tmp_path: Path) -> None:
    assert digest_in(tmp_path, {}, FEW_FILES) == expected


@pytest.mark.nightly
def test_no_assertion_is_needed(expected: str, tmp_path: Path) -> None:
    """``python -O``, here and in all processes of the roles."""
    assert digest_in(tmp_path, {"PYTHONOPTIMIZE": "1"}, python=("-O",)) == expected


@pytest.mark.nightly
def test_another_ray_on_the_host_is_left_alone(expected: str, tmp_path: Path) -> None:
    with another_ray():
        assert digest_in(tmp_path, {}) == expected


@needs_root
@pytest.mark.nightly
def test_small_shared_memory_is_enough(expected: str, tmp_path: Path) -> None:
    """64 MiB, as containers have by default."""
    mounts = ("unshare", "--mount")
    assert digest_in(tmp_path, {}, SMALL_SHM, namespaces=mounts) == expected
