"""``waferstream management start``: one appliance for many users."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from waferstream.cli.frame.commands import command
from waferstream.cli.frame.options import port_flag
from waferstream.core.config import load_yaml, validate
from waferstream.core.units import GIB
from waferstream.host.user_state import state_folder
from waferstream.management.client.address import keep_token
from waferstream.management.model.inventory import Inventory, QueueSpec
from waferstream.management.notices.sender import Relays

if TYPE_CHECKING:
    from waferstream.management.door.tls import DoorTls


@command("management start", "--systems 4")
def start(
    systems: Annotated[int, Option(help="CS systems")] = 4,
    groups: Annotated[int, Option(help="MemoryX groups")] = 1,
    kind: Annotated[Literal["CS-2", "CS-3"], Option(help="kind of all systems")] = "CS-2",
    inventory: Annotated[
        Path | None,
        Option(help="YAML file of systems and groups, instead of the three flags above"),
    ] = None,
    folder: Annotated[
        Path | None,
        Option(help="folder of packages, runs and the store (default: in the state folder)"),
    ] = None,
    store: Annotated[
        str | None, Option(help="postgresql://USER@HOST/DATABASE (default: a file in the folder)")
    ] = None,
    ray: Annotated[
        str | None, Option(help="Ray cluster that runs jobs, http://host:8265 (default: none)")
    ] = None,
    host: Annotated[str, Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, port_flag("port of gRPC, which commands ask; 0: any free one")] = 9000,
    http_port: Annotated[int, port_flag("port of the pages; 0: any free one")] = 9080,
    user_gib: Annotated[
        float | None, Option(help="disk of each user in GiB (default: any)")
    ] = None,
    relays: Annotated[Path | None, Option(help="YAML of relays for mail and webhooks")] = None,
    tls: Annotated[
        Path | None, Option(help="folder of certificates, made by waferstream certificates make")
    ] = None,
    require_certificates: Annotated[
        bool, Option(help="ask clients for a certificate of the same authority, too")
    ] = False,
) -> int:
    """Serve an appliance until Ctrl-C."""
    from waferstream.management.door.doors import DoorSettings  # noqa: PLC0415  (HTTP and gRPC)
    from waferstream.management.server import ServerSettings, running  # noqa: PLC0415

    if inventory is None:
        numbers = {"systems": systems, "memoryx_groups": groups}
        found = validate(QueueSpec, numbers, "--systems, --groups").inventory(kind)
    else:
        found = validate(Inventory, load_yaml(inventory), str(inventory))
    settings = ServerSettings(
        folder=folder or state_folder() / "management",
        inventory=found,
        store=store,
        ray_address=ray,
        doors=DoorSettings(host, port, http_port, _door_tls(tls, require_certificates)),
        relays=Relays() if relays is None else validate(Relays, load_yaml(relays), str(relays)),
        user_bytes=None if user_gib is None else int(user_gib * GIB),
    )
    with running(settings) as server:
        keep_token(server.doors.address, server.token)
        print(f"address: {server.doors.address}", f"pages:   {server.doors.url}", sep="\n")
        print(f"token:   {server.token}", flush=True)
        ended = threading.Event()  # by a signal; what it has launched goes on
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: ended.set())
        ended.wait()
    return 0


def _door_tls(folder: Path | None, asks_clients: bool) -> DoorTls | None:
    """Return the certificates of a folder; None without one."""
    from waferstream.management.door.tls import DoorTls  # noqa: PLC0415  (cryptography)

    if folder is None:
        return None
    paths = {key: folder / f"{key}.pem" for key in ("ca", "certificate", "key")}
    return validate(DoorTls, paths | {"clients": asks_clients}, "--tls")
