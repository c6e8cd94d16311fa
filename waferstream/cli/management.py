"""``waferstream management start``: one appliance for many users."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from waferstream.core.config import load_yaml, validate
from waferstream.core.units import GIB
from waferstream.host.user_state import state_folder
from waferstream.management.client.address import keep_token
from waferstream.management.model.inventory import Inventory, QueueSpec
from waferstream.management.notices.sender import Relays

COMMAND = "management"

PORT, HTTP_PORT = 9000, 9080
"""Ports of gRPC and of HTTP, unless others are named."""


def management_parser() -> argparse.ArgumentParser:
    """Build the argparse parser of ``waferstream management``."""
    parser = argparse.ArgumentParser(prog="waferstream management", allow_abbrev=False)
    choices = parser.add_subparsers(metavar="COMMAND", required=True)
    start = choices.add_parser("start", help="serve an appliance until Ctrl-C", allow_abbrev=False)
    start.add_argument("--systems", type=int, default=4, help="CS systems (default: 4)")
    start.add_argument("--groups", type=int, default=1, help="MemoryX groups (default: 1)")
    start.add_argument(
        "--kind",
        choices=("CS-2", "CS-3"),
        default="CS-2",
        help="kind of all systems (default: CS-2)",
    )
    start.add_argument(
        "--inventory",
        type=Path,
        help="YAML file of systems and groups, instead of the three flags above",
    )
    start.add_argument(
        "--folder",
        type=Path,
        help="folder of packages, runs and the store (default: in the state folder)",
    )
    start.add_argument(
        "--store", help="postgresql://USER@HOST/DATABASE (default: a file in the folder)"
    )
    start.add_argument("--ray", help="Ray cluster that runs jobs, http://host:8265 (default: none)")
    start.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)"
    )
    start.add_argument(
        "--port",
        type=int,
        default=PORT,
        help=f"port of gRPC, which commands ask; 0: any free one (default: {PORT})",
    )
    start.add_argument(
        "--http_port",
        type=int,
        default=HTTP_PORT,
        help=f"port of the pages; 0: any free one (default: {HTTP_PORT})",
    )
    start.add_argument("--user_gib", type=float, help="disk of each user in GiB (default: any)")
    start.add_argument("--relays", type=Path, help="YAML of relays for mail and webhooks")
    start.add_argument(
        "--tls", type=Path, help="folder of certificates, made by waferstream certificates make"
    )
    start.add_argument(
        "--require_certificates",
        action="store_true",
        help="ask clients for a certificate of the same authority, too",
    )
    return parser


def run_management(words: Sequence[str]) -> int:
    """Serve an appliance until a signal ends it; return the exit code.

    Raises:
        ConfigError: A flag or a file is wrong.
    """
    given = management_parser().parse_args(words)
    from waferstream.management.door.doors import DoorSettings  # noqa: PLC0415  (HTTP and gRPC)
    from waferstream.management.door.tls import DoorTls  # noqa: PLC0415
    from waferstream.management.server import ServerSettings, running  # noqa: PLC0415

    tls = None
    if given.tls is not None:
        files = {"ca": "ca.pem", "certificate": "certificate.pem", "key": "key.pem"}
        paths = {key: given.tls / name for key, name in files.items()}
        tls = validate(DoorTls, paths | {"clients": given.require_certificates}, "--tls")
    settings = ServerSettings(
        folder=given.folder or state_folder() / "management",
        inventory=_inventory(given),
        store=given.store,
        ray_address=given.ray,
        doors=DoorSettings(given.host, given.port, given.http_port, tls),
        relays=_relays(given.relays),
        user_bytes=None if given.user_gib is None else int(given.user_gib * GIB),
    )
    with running(settings) as server:
        keep_token(server.doors.address, server.token)
        print(f"address: {server.doors.address}", f"pages:   {server.doors.url}", sep="\n")
        print(f"token:   {server.token}", flush=True)
        _wait_for_signal()
    return 0


def _inventory(given: argparse.Namespace) -> Inventory:
    if given.inventory is not None:
        return validate(Inventory, load_yaml(given.inventory), str(given.inventory))
    numbers = {"systems": given.systems, "memoryx_groups": given.groups}
    return validate(QueueSpec, numbers, "--systems, --groups").inventory(given.kind)


def _relays(path: Path | None) -> Relays:
    return Relays() if path is None else validate(Relays, load_yaml(path), str(path))


def _wait_for_signal() -> None:
    """Wait for SIGINT or SIGTERM; then the management ends, and what it has launched goes on."""
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
