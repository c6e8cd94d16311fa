"""Where a management listens, and who it and its clients trust."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from swarmx.links.certificates import Credentials, make_authority, make_certificate
from tests.support.errors import raises
from tests.support.management.fake_handlers import FakeHandlers
from waferstream.core.errors import ApplianceServiceInterrupted, ConfigError, RequestRefused
from waferstream.management.client.remote import RemoteClient
from waferstream.management.door.doors import Doors, DoorSettings
from waferstream.management.door.tls import DoorTls
from waferstream.management.model.operations import Caller, ListWorkflows

DAY = timedelta(days=1)
TOKEN = "wst-ann"


def write(folder: Path, authority: Credentials, *names: str) -> Path:
    """Write the files that ``waferstream certificates make`` writes for a name."""
    folder.mkdir()
    made = make_certificate(authority, names, DAY)
    (folder / "ca.pem").write_bytes(authority.certificate)
    (folder / "certificate.pem").write_bytes(made.certificate)
    (folder / "key.pem").write_bytes(made.key)
    (folder / "key.pem").chmod(0o600)
    return folder


def tls(folder: Path, *, clients: bool = False) -> DoorTls:
    return DoorTls(
        ca=folder / "ca.pem",
        certificate=folder / "certificate.pem",
        key=folder / "key.pem",
        clients=clients,
    )


@pytest.fixture
def authority() -> Credentials:
    return make_authority("test", DAY)


@pytest.fixture
def server(tmp_path: Path, authority: Credentials) -> Path:
    return write(tmp_path / "server", authority, "127.0.0.1")


@pytest.fixture
def handlers(tmp_path: Path) -> FakeHandlers:
    made = FakeHandlers(tmp_path)
    made.add(TOKEN, Caller(user="ann"))
    return made


def asks(doors: Doors, token: str, certificate: Path | None) -> None:
    client = RemoteClient(doors.address, token, certificate, patience_s=0.0)
    try:
        client.do(ListWorkflows())
    finally:
        client.close()


def test_token_travels_encrypted(handlers: FakeHandlers, server: Path) -> None:
    settings = DoorSettings(tls=tls(server))
    with Doors(handlers, handlers.authentication(), settings) as doors:
        asks(doors, TOKEN, server / "ca.pem")
        with raises(ApplianceServiceInterrupted, "management-unreachable"):
            asks(doors, TOKEN, None)
        context = ssl.create_default_context(cafile=str(server / "ca.pem"))
        shown = {"authorization": f"Bearer {TOKEN}"}
        assert doors.url.startswith("https://")
        assert httpx.get(f"{doors.url}/v1/workflows", headers=shown, verify=context).json() == []


def test_management_of_another_authority_is_not_asked(
    handlers: FakeHandlers, server: Path, tmp_path: Path
) -> None:
    other = write(tmp_path / "other", make_authority("other", DAY), "127.0.0.1")
    with (
        Doors(handlers, handlers.authentication(), DoorSettings(tls=tls(server))) as doors,
        raises(ApplianceServiceInterrupted, "management-unreachable"),
    ):
        asks(doors, TOKEN, other / "ca.pem")


def test_certificate_of_a_user_does_for_a_token(
    handlers: FakeHandlers, server: Path, authority: Credentials, tmp_path: Path
) -> None:
    ann = write(tmp_path / "ann", authority, "ann")
    bob = write(tmp_path / "bob", authority, "bob")
    settings = DoorSettings(tls=tls(server, clients=True))
    with Doors(handlers, handlers.authentication(), settings) as doors:
        asks(doors, "", ann)
        asks(doors, TOKEN, bob)  # a token counts more
        with raises(RequestRefused, "token-missing"):
            asks(doors, "", bob)  # no user has this name
        with raises(ApplianceServiceInterrupted, "management-unreachable"):
            asks(doors, TOKEN, server / "ca.pem")


def test_management_that_others_reach_needs_a_certificate(
    handlers: FakeHandlers, server: Path
) -> None:
    authentication = handlers.authentication()
    with raises(ConfigError, "management-beyond-loopback"):
        Doors(handlers, authentication, DoorSettings(host="0.0.0.0"))
    with Doors(handlers, authentication, DoorSettings(host="0.0.0.0", tls=tls(server))):
        pass


def test_token_is_not_sent_to_another_host_without_certificate() -> None:
    with raises(ConfigError, "management-without-certificate"):
        RemoteClient("10.0.0.1:9000", TOKEN)


def test_port_that_is_taken_is_an_error(handlers: FakeHandlers) -> None:
    authentication = handlers.authentication()
    with Doors(handlers, authentication, DoorSettings()) as doors:
        _, _, port = doors.address.rpartition(":")
        _, _, http_port = doors.url.rpartition(":")
        for settings in (DoorSettings(port=int(port)), DoorSettings(http_port=int(http_port))):
            with (
                raises(ConfigError, "management-port-in-use"),
                Doors(handlers, authentication, settings),
            ):
                pass
