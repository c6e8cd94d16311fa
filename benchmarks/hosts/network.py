"""The network of hosts in miniature: a namespace for each, and one with the switch between them.

A bridge in a namespace of its own is the switch, so that the network of the computer is left as it
is.

    host 0: 10.77.0.1  host 1: 10.77.0.2  host 2: 10.77.0.3
                \\           |           /
                      bridge 10.77.0.254
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.hosts.relay import MOST_QUEUED

REPOSITORY = Path(__file__).resolve().parents[2]
_SNIFFER, _RELAY = "benchmarks.hosts.sniffer", "benchmarks.hosts.relay"


def refusal() -> str | None:
    """Return why this computer does not permit hosts in miniature, None if it does."""
    if os.geteuid() != 0:
        return "namespaces need root"
    if missing := [tool for tool in ("ip", "tc", "unshare", "nsenter") if not shutil.which(tool)]:
        return f"{', '.join(missing)} not installed"
    name = _unused_name()
    try:
        _call("ip", "netns", "add", name)
        try:
            _call("ip", "-n", name, "link", "add", "sw0", "type", "bridge")
        finally:
            _call("ip", "netns", "del", name)
    except subprocess.CalledProcessError as error:
        return f"namespaces are not permitted: {error.stderr.strip()}"
    return None


class Network:
    """A switch, and the links of hosts to it.

    Args:
        undo: Takes what removes the network again.
    """

    def __init__(self, undo: ExitStack) -> None:
        self._undo = undo
        self._prefix = _unused_name()
        self._switch = f"{self._prefix}sw"
        _call("ip", "netns", "add", self._switch)
        undo.callback(_call, "ip", "netns", "del", self._switch)
        self._make_bridge("sw0")
        self._on_switch("addr", "add", "10.77.0.254/24", "dev", "sw0")

    def namespace(self, host: int) -> str:
        """Return the name of a host's namespace."""
        return f"{self._prefix}h{host}"

    def address(self, host: int) -> str:
        """Return the address of a host."""
        return f"10.77.0.{host + 1}"

    def add(self, host: int) -> None:
        """Make the namespace of a host, and connect it."""
        name, port = self.namespace(host), f"to{host}"
        _call("ip", "netns", "add", name)
        self._undo.callback(_call, "ip", "netns", "del", name)
        self._on_switch("link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._attach(port, "sw0")
        _call("ip", "-n", name, "link", "set", "lo", "up")
        _call("ip", "-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        _call("ip", "-n", name, "link", "set", "eth0", "up")
        # Without a route to the world Ray takes 127.0.0.1 for the address of the host.
        _call("ip", "-n", name, "route", "add", "default", "via", "10.77.0.254")

    def sent_bytes(self, host: int) -> int:
        """Return how many bytes a host has sent to the others: what its port has received."""
        shown = self._on_switch("-s", "-j", "link", "show", f"to{host}")
        return int(json.loads(shown)[0]["stats64"]["rx"]["bytes"])

    @contextmanager
    def sniffing(self, file: Path) -> Iterator[None]:
        """Write all that crosses the switch during a block to a file.

        Raises:
            RuntimeError: Packets were missed, so the file proves nothing.
        """
        with self._process(_SNIFFER, str(file)) as sniffer:
            yield
            missed, _ = sniffer.communicate()
        if missed.strip() != "0":
            raise RuntimeError(f"{missed.strip() or 'all'} packets were missed")

    def limit_rate(self, host: int, megabits: int) -> None:
        """Let a host send at most ``megabits`` per second."""
        rate = ["rate", f"{megabits}mbit", "burst", "256kb", "latency", "50ms"]
        self._shape(self.namespace(host), "eth0", "tbf", *rate)

    def lift_limit(self, host: int) -> None:
        """Let a host send as fast as it can again."""
        self._unshape(self.namespace(host), "eth0")

    @contextmanager
    def slow_link(self, host: int, delay_ms: float, megabits: float) -> Iterator[None]:
        """Give a host's link a delay and a rate, in each direction, during a block.

        By ``netem`` where the kernel has it, else by a relay between the host and the switch.
        """
        with ExitStack() as undo:
            shape = ["netem", "delay", f"{delay_ms}ms", "rate", f"{megabits}mbit"]
            try:
                for name, device in ((self.namespace(host), "eth0"), (self._switch, f"to{host}")):
                    self._shape(name, device, *shape, "limit", str(MOST_QUEUED))
                    undo.callback(self._unshape, name, device)
            except subprocess.CalledProcessError:
                undo.close()
                undo.enter_context(self._relayed(host, delay_ms, megabits))
            yield

    def cut(self, host: int) -> None:
        """Take the link of a host down: it is silent from now on."""
        self._on_switch("link", "set", f"to{host}", "down")

    @contextmanager
    def _relayed(self, host: int, delay_ms: float, megabits: float) -> Iterator[None]:
        """Put a relay between the port of a host, on a bridge of its own, and the switch."""
        bridge, near, far = f"slow{host}", f"near{host}", f"far{host}"
        self._make_bridge(bridge)
        try:
            with self._process(_RELAY, near, far, str(delay_ms), str(megabits)) as relay:
                self._attach(near, bridge)
                self._attach(far, "sw0")
                self._attach(f"to{host}", bridge)
                try:
                    yield
                finally:
                    self._attach(f"to{host}", "sw0")
                    relay.communicate()
        finally:
            self._on_switch("link", "del", bridge)

    @contextmanager
    def _process(self, module: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run a module in the namespace of the switch until its standard input ends."""
        command = ["ip", "netns", "exec", self._switch, sys.executable, "-m", module, *arguments]
        with subprocess.Popen(
            command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None, "it is a pipe"
            if not process.stdout.readline():  # it says when it is ready
                raise RuntimeError(f"{module} does not start")
            yield process

    def _make_bridge(self, name: str) -> None:
        self._on_switch("link", "add", name, "type", "bridge")
        self._on_switch("link", "set", name, "up")

    def _attach(self, port: str, bridge: str) -> None:
        self._on_switch("link", "set", port, "master", bridge, "up")

    def _on_switch(self, *arguments: str) -> str:
        return _call("ip", "-n", self._switch, *arguments)

    def _shape(self, namespace: str, device: str, *discipline: str) -> None:
        _call("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *discipline)

    def _unshape(self, namespace: str, device: str) -> None:
        _call("tc", "-n", namespace, "qdisc", "del", "dev", device, "root")


def _unused_name() -> str:
    """Draw a name: a process may have several networks, and a killed one leaves its own behind."""
    return f"ws{secrets.token_hex(4)}"


def _call(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
