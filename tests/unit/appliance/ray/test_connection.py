"""Joining a Ray cluster that is not there."""

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from ray._private import services

from appliance.ray import connection
from appliance.ray.connection import enter
from appliance.spec import RuntimeSpec
from wsc.core.errors import ClusterJobInitError

SETTINGS = b"\0\0\0\4\0\0\0\0\0"
"""An empty SETTINGS frame, with which every HTTP/2 server begins (RFC 9113, section 3.4)."""


def test_address_that_does_not_answer_fails_fast() -> None:
    """A closed port is found out in seconds; Ray by itself tries for more than a minute."""
    with socket.socket() as taken:  # bound but not listening: nobody else can answer there
        taken.bind(("127.0.0.1", 0))
        start = time.monotonic()
        with pytest.raises(ClusterJobInitError, match="no Ray cluster answers"):
            enter(RuntimeSpec(address=f"127.0.0.1:{taken.getsockname()[1]}"))
    assert time.monotonic() - start < 6


@pytest.mark.parametrize("noted", ["127.0.0.1:9", None])
def test_an_instance_that_is_gone_is_not_waited_for(monkeypatch, noted) -> None:
    """`auto` finds what a killed instance has left, or nothing; both are told in seconds."""

    def latest(*_: object, **__: object) -> str:
        if noted is None:
            raise ConnectionError("Could not find any running Ray instance.")
        return noted

    monkeypatch.setattr(services, "get_ray_address_from_environment", latest)
    start = time.monotonic()
    with pytest.raises(ClusterJobInitError, match="no Ray cluster") as caught:
        enter(RuntimeSpec(address="auto"))
    assert "ray start --head" in str(caught.value)
    assert time.monotonic() - start < 6


def test_port_of_another_service_is_told_apart() -> None:
    """A web server is not taken for Ray, which would wait for it for many minutes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = threading.Thread(target=refuse_politely, args=(server,))
        answer.start()
        with pytest.raises(ClusterJobInitError, match="but not Ray's"):
            enter(RuntimeSpec(address=f"127.0.0.1:{server.getsockname()[1]}"))
        answer.join()


def refuse_politely(server: socket.socket) -> None:
    peer, _ = server.accept()
    with peer:
        peer.recv(1024)
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_another_grpc_server_is_told_apart() -> None:
    """It greets like Ray, but does not know the first call of ray.init, which would try 20 times."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    start = time.monotonic()
    with pytest.raises(ClusterJobInitError, match="but not Ray's"):
        enter(RuntimeSpec(address=f"127.0.0.1:{port}"))
    assert time.monotonic() - start < 6
    server.stop(None).wait()


def test_a_server_that_greets_and_says_no_more_is_given_up(monkeypatch) -> None:
    """A head that hangs, or something else that speaks HTTP/2, is asked once."""
    monkeypatch.setattr(connection, "_ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = threading.Thread(target=greet_and_fall_silent, args=(server,))
        answer.start()
        start = time.monotonic()
        with pytest.raises(ClusterJobInitError, match="Ray could not be joined"):
            enter(RuntimeSpec(address=f"127.0.0.1:{server.getsockname()[1]}"))
        assert time.monotonic() - start < 6
        answer.join()


def greet_and_fall_silent(server: socket.socket) -> None:
    """To the greeting of ``enter`` and to Ray's client, until both have gone."""
    for _ in range(2):
        peer, _ = server.accept()
        with peer:
            peer.sendall(SETTINGS)
            while peer.recv(1024):
                pass


@pytest.mark.parametrize("address", ["", "nowhere", "ray://head:10001x", "head:", ":6379"])
def test_malformed_address_is_refused(address: str) -> None:
    """What is no host and port is told so, without asking the network."""
    with pytest.raises(ClusterJobInitError, match="no address of a Ray cluster"):
        enter(RuntimeSpec(address=address))
