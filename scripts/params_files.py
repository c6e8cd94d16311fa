"""Count the params files of a checkout of the vendor's Model Zoo that are accepted here.

    python -m scripts.params_files --checkout DIR

Each file is checked like ``waferstream config validate FILE`` does. Exit codes: 0 files were found,
1 there are none.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import yaml

from waferstream.cli.main import main as waferstream


def params_files(checkout: Path) -> Iterator[Path]:
    """Yield the files of a checkout that configure a trainer, sorted by path."""
    for path in sorted(checkout.rglob("configs/**/*.yaml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and "trainer" in content:
            yield path


def refusal(path: Path) -> str | None:
    """Return the first line of the error for a params file, None if it is accepted."""
    errors = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(errors):
        code = waferstream(["config", "validate", str(path)])
    lines = errors.getvalue().strip().splitlines()
    return None if code == 0 else next(iter(lines), f"exit code {code}")


def main(words: list[str] | None = None) -> int:
    """Print the state of every params file, and how many are accepted; return the exit code."""
    parser = argparse.ArgumentParser(description="Count the params files that are accepted here.")
    parser.add_argument("--checkout", type=Path, required=True, help="checkout of the Model Zoo")
    checkout = parser.parse_args(words).checkout
    refusals = {path: refusal(path) for path in params_files(checkout)}
    for path, reason in refusals.items():
        print(f"{path.relative_to(checkout)}: {reason or 'accepted'}")
    accepted = sum(reason is None for reason in refusals.values())
    print(f"{accepted} of {len(refusals)} files are accepted")
    return 0 if refusals else 1


if __name__ == "__main__":
    sys.exit(main())
