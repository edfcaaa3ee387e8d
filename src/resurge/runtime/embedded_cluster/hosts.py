"""Hosts on this machine: a network namespace each, with an address and a /dev/shm of its own, and links that can be cut.

The namespaces are joined by a bridge in a namespace of its own, so that nothing touches the machine's network. Linux, as root.
"""

import contextlib
import ctypes
import os
import platform
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from resurge.errors import ClusterError

NAMESPACES = Path("/var/run/netns")
OWN = Path("/proc/thread-self/ns/net")
DRIVER, MASTER, BRIDGE = "driver", "master", "bridge"
FIRST_NODE, MOST_NODES = 10, 240
_CLONE_NEWNET = 0x40000000


def why_not() -> str | None:
    """Why hosts cannot be made on this machine; None if they can."""
    if platform.system() != "Linux":
        return f"network namespaces are Linux's, and this is {platform.system()}"
    if os.geteuid() != 0:
        return "making network namespaces needs root"
    if shutil.which("ip") is None:
        return "there is no ip command (package iproute2)"
    probe = f"resurge-probe-{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "delete", probe], capture_output=True, check=False)
    return None if made.returncode == 0 else f"this machine does not let us make network namespaces: {made.stderr.strip()}"


class HostNetwork:
    """The hosts of one cluster: a driver, a master and nodes. All its namespaces begin with its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    @classmethod
    def create(cls) -> "HostNetwork":
        """A network with a driver's and a master's host."""
        reason = why_not()
        if reason is not None:
            raise ClusterError(f"nodes cannot have hosts of their own here: {reason}; start the cluster without --hosts")
        network = cls(f"rsg{secrets.token_hex(3)}")
        try:
            network._begin()
        except BaseException:
            network.remove()
            raise
        return network

    def _begin(self) -> None:
        _ip("netns", "add", self._namespace(BRIDGE))
        _ip("-n", self._namespace(BRIDGE), "link", "add", "name", BRIDGE, "type", "bridge")
        _ip("-n", self._namespace(BRIDGE), "link", "set", "dev", BRIDGE, "up")
        for host in (DRIVER, MASTER):
            self.add(host)

    def add(self, host: str) -> str:
        """Make a host and plug it into the bridge; its address."""
        address, space, bridge = self.address(host), self._namespace(host), self._namespace(BRIDGE)
        _ip("netns", "add", space)
        _ip("-n", bridge, "link", "add", "name", host, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", bridge, "link", "set", "dev", host, "master", BRIDGE, "up")
        _ip("-n", space, "address", "add", f"{address}/16", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", space, "link", "set", "dev", device, "up")
        return address

    @staticmethod
    def address(host: str) -> str:
        """The address of a host inside the network.

        >>> HostNetwork.address("driver"), HostNetwork.address("node-3")
        ('10.77.0.1', '10.77.0.13')
        """
        if host in (DRIVER, MASTER):
            return f"10.77.0.{1 if host == DRIVER else 2}"
        number = FIRST_NODE + int(host.rpartition("-")[2])
        return f"10.77.{number // MOST_NODES}.{number % MOST_NODES or MOST_NODES}"

    def command(self, host: str, command: Sequence[str]) -> list[str]:
        """A command as it runs on a host, in one process: its network, and a memory-backed folder that no other host sees."""
        private = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        unshared = ["unshare", "--mount", "--propagation", "private", "sh", "-c", private, "sh"]
        return ["ip", "netns", "exec", self._namespace(host), *unshared, *command]

    def cut(self, hosts: Sequence[str]) -> None:
        """Take the links of hosts down: what they send is lost, and they hear nothing."""
        for host in hosts:
            _ip("-n", self._namespace(BRIDGE), "link", "set", "dev", host, "down")

    def heal(self, hosts: Sequence[str]) -> None:
        """Bring the links of hosts up again."""
        for host in hosts:
            _ip("-n", self._namespace(BRIDGE), "link", "set", "dev", host, "up")

    def remove(self) -> None:
        """Delete all namespaces, and with them the links."""
        for space in NAMESPACES.glob(f"{self.name}-*"):
            subprocess.run(["ip", "netns", "delete", space.name], capture_output=True, check=False)

    @contextlib.contextmanager
    def inside(self, host: str) -> Iterator[None]:
        """Let this thread, and the threads and processes that it starts, use a host's network."""
        with OWN.open() as before:
            self.enter(host)
            try:
                yield
            finally:
                _set_namespace(before.fileno(), "the network before")

    def enter(self, host: str) -> None:
        """Let this thread use a host's network from now on."""
        with (NAMESPACES / self._namespace(host)).open() as space:
            _set_namespace(space.fileno(), f"the network of {host}")

    def _namespace(self, host: str) -> str:
        return f"{self.name}-{host}"


def _set_namespace(descriptor: int, what: str) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, _CLONE_NEWNET) != 0:
        raise ClusterError(f"cannot enter {what}: {os.strerror(ctypes.get_errno())}; expected to run as root")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"ip {' '.join(arguments)} failed: {done.stderr.strip()}; nodes cannot have hosts of their own here")
