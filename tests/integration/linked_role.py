"""A role on one of two hosts: exchanges a message with its peer, then waits for another.

Started as ``python linked_role.py <link kind> <own address> <role> <peer> <folder>``; addresses are
exchanged as files. Prints a line when the two are linked, and one with the error that ends it.
"""

import json
import sys
import time
from pathlib import Path
from typing import cast

from swarmx.links.endpoint import Address
from swarmx.links.link import LinkKind, open_link
from tests.support.roles.open_links import read_address
from waferstream.core.errors import WaferStreamError
from waferstream.core.messages.messages import Envelope, WeightsReady

PATIENCE_S = 60.0


def address_of(folder: Path, role: str) -> Address:
    """Wait until a role has written its address."""
    path = folder / role
    while not path.exists():
        time.sleep(0.05)
    return read_address(json.loads(path.read_text()))


def main(kind: str, host: str, role: str, peer: str, folder: Path) -> None:
    link = open_link(cast(LinkKind, kind), role, "hosts", host=host)
    endpoint = link.endpoint
    partial = folder / f"{role}.partial"
    partial.write_text(json.dumps(endpoint.address))
    partial.rename(folder / role)
    endpoint.connect({role: endpoint.address, peer: address_of(folder, peer)})
    endpoint.send(Envelope(role, peer, WeightsReady(1, 0, 0, link.arena.allocate(1000))))
    endpoint.receive(PATIENCE_S)
    print("linked", flush=True)
    try:
        endpoint.receive(PATIENCE_S)
    except WaferStreamError as error:
        print(error.code, error.value, flush=True)


if __name__ == "__main__":
    *words, folder = sys.argv[1:]
    main(words[0], words[1], words[2], words[3], Path(folder))
