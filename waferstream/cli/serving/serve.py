"""``waferstream serve``: a model behind HTTP, here or at an appliance, or a plan of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from waferstream.cli.frame.commands import WORDS, command
from waferstream.cli.frame.options import port_flag
from waferstream.cli.serving.computing import Computing, Model, needing_packages
from waferstream.cli.serving.planning import Planning
from waferstream.core.errors import ConfigError
from waferstream.host.loopback import is_loopback
from waferstream.host.terminal import log_to_terminal


@dataclass(frozen=True)
class Service:
    """Flags of the service itself."""

    host: Annotated[str, Option(help="address; without --accounts one of loopback")] = "127.0.0.1"
    port: Annotated[int, port_flag("0 takes a free one")] = 8000
    files: Annotated[Path | None, Option(help="folder that keeps files and batches of clients")] = (
        None
    )
    mgmt_address: Annotated[str | None, Option(help="let the appliance at host:port serve")] = None
    detach: Annotated[bool, Option(help="submit to the appliance, and return at once")] = False
    accounts: Annotated[
        Path | None, Option(help="file of keys (serve keys create); default: no keys")
    ] = None
    prices: Annotated[Path | None, Option(help="YAML of prices by model; default: free")] = None


@command("serve", "model_dir --port 8000")
def serve(
    ctx: typer.Context, model_dir: Model, service: Service, planning: Planning, computing: Computing
) -> int:
    """Serve a model over HTTP until a signal comes; what is under way then ends first."""
    if planning.is_asked:
        return planning.run(model_dir, computing.wafers)
    planning.check_absent()
    if service.mgmt_address:
        return _serve_elsewhere(model_dir, service, computing, ctx.meta[WORDS])
    deployment = computing.deployment(model_dir)
    if service.accounts is None:
        _check_host(service.host)
    with needing_packages():
        from waferstream.serving.http import server  # noqa: PLC0415  (starlette is an extra)
    settings = server.ServiceSettings(
        service.host, service.port, service.files, service.accounts, service.prices
    )
    server.serve(deployment, settings, lambda url: print(url, flush=True))
    return 0


def _serve_elsewhere(
    model_dir: Path, service: Service, computing: Computing, words: tuple[str, ...]
) -> int:
    """Let an appliance serve, as a workflow that ends when it is cancelled."""
    from waferstream.management.client.site import address_of  # noqa: PLC0415
    from waferstream.management.client.submitting import submit, travelling  # noqa: PLC0415  (gRPC)
    from waferstream.management.model.workflow import Submission  # noqa: PLC0415

    log_to_terminal("INFO")
    model = str(model_dir)
    place = str(model_dir.resolve()) if model_dir.exists() else model
    submission = Submission(
        words=tuple(place if word == model else word for word in travelling(words)),
        num_csx=computing.wafers or 1,
        is_service=True,
        is_detached=service.detach,
    )
    address = address_of(service.mgmt_address)
    assert address is not None, "the command line names it"
    submit(address, submission, (), None)
    return 0


def _check_host(host: str) -> None:
    """Raise ConfigError for an address that others reach: without keys they all could ask."""
    if not is_loopback(host):
        raise ConfigError(
            "the service must listen on loopback",
            code="serve-beyond-loopback",
            where="--host",
            value=host,
            rule="without --accounts everybody who reaches it may use it",
            remedy="give it keys (waferstream serve keys create NAME, --accounts accounts.db)",
        )
