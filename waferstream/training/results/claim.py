"""The claim of a run on its model folder: one run at a time trains in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from waferstream.core.errors import ConfigError
from waferstream.core.system_errors import remedy_of
from waferstream.host.locks import locked

CLAIM_NAME = ".run.lock"


@contextmanager
def claimed(model_dir: Path) -> Iterator[None]:
    """Claim a folder for one run that trains; the claim ends with the process.

    Raises:
        ConfigError: Another run trains in it.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(model_dir / CLAIM_NAME, 0))
        except TimeoutError as error:
            raise ConfigError(
                "one run at a time can train in a model_dir",
                code="model-dir-in-use",
                where=str(model_dir),
                value=error.strerror,
                rule="runs in one folder would continue from, and remove, each other's checkpoints",
                remedy="wait for the other run, or name another model_dir",
            ) from error
        except OSError as error:
            raise not_writable(model_dir, error) from error
        stack.callback((model_dir / CLAIM_NAME).unlink, missing_ok=True)
        yield


def check_claim(model_dir: Path) -> None:
    """Raise ConfigError if another run trains in a folder; claim nothing."""
    if (model_dir / CLAIM_NAME).exists():
        with claimed(model_dir):
            pass


def not_writable(model_dir: Path, error: OSError) -> ConfigError:
    """Return the error for a folder that the system does not let a run write to."""
    return ConfigError(
        "model_dir must be writable",
        code="model-dir-not-writable",
        where=str(model_dir),
        value=error.strerror,
        remedy=remedy_of(error),
    )
