"""Sockets: addresses, options, forks, name lookups, adopted sockets, and Unix sockets."""

from __future__ import annotations

import gc
import os
import signal
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from kprod.config import ProducerConfig
from kprod.errors import ConnectionLost
from kprod.security.composition import open_network
from kprod.transport.tcp import Address, NameLookup, NameLookups, TcpBackend, UnixBackend
from kprod.transport.tcp_transport import TcpTransport
from kprod_ext import Poller
from tests.support.ports import free_port
from tests.unit.transport.test_contract import RESET_ON_CLOSE

LONG = 20.0
IP_LOCAL_PORT_RANGE = 51  # Linux 6.3; the socket module has no name for it


def ipv4(host: str, port: int) -> Address:
    return Address(socket.AF_INET, (host, port))


NOWHERE = ipv4("255.255.255.255", 9)
"""Connecting to it fails at once."""


def until_connected(transport: TcpTransport, wait: Callable[[], Sequence[object]]) -> None:
    """Wait ``LONG`` for the connection, and before that for the lookup of the name."""
    while not transport.advance():
        assert wait() or wait() or transport.advance()


def resolved(backend: TcpBackend, host: str = "name", port: int = 1) -> TcpTransport:
    """A transport whose name is resolved."""
    transport = backend.dial(host, port)
    while "not resolved" in transport.progress():
        backend.poll(LONG)
    return transport


def connect(backend: TcpBackend, host: str = "name", port: int = 1) -> TcpTransport:
    transport = backend.dial(host, port)
    until_connected(transport, partial(backend.poll, LONG))
    return transport


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@contextmanager
def backend_of(*addresses: Address) -> Iterator[TcpBackend]:
    """A backend that resolves every name to these addresses."""
    backend = TcpBackend(resolver=lambda host, port: list(addresses))
    yield backend
    backend.close()


@contextmanager
def silent_address() -> Iterator[Address]:
    """An address that neither accepts nor refuses: its queue of connections is full."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield ipv4(*listener.getsockname())


def test_addresses_that_refuse_or_fail_at_once_are_skipped(listener: socket.socket) -> None:
    there = ipv4(*listener.getsockname())
    with backend_of(ipv4("127.0.0.1", free_port()), NOWHERE, there) as backend:
        connect(backend)


def test_the_error_has_the_cause_for_every_address() -> None:
    with backend_of(ipv4("127.0.0.1", free_port()), NOWHERE) as backend:
        with pytest.raises(ConnectionLost) as raised:
            connect(backend, "kafka.example", 9092)
        error = str(raised.value)
        assert error.startswith("cannot connect to kafka.example:9092 (127.0.0.1: ")
        assert "refused" in error
        assert "; 255.255.255.255: " in error


def test_failing_at_every_address_at_once_is_reported_by_poll() -> None:
    """``dial`` returns, so that failures are handled in one place."""
    with backend_of(NOWHERE) as backend:
        transport = resolved(backend)
        assert backend.poll(LONG) == backend.poll(LONG) == [(transport, True, True)]
        with pytest.raises(ConnectionLost, match=r"255\.255\.255\.255: "):
            transport.advance()
        backend.forget(transport)
        assert backend.poll(0) == []


def test_after_a_silent_address_the_next_one_is_tried_first(listener: socket.socket) -> None:
    with silent_address() as silent, backend_of(silent, ipv4(*listener.getsockname())) as backend:
        waiting = resolved(backend)
        assert not waiting.advance()
        assert backend.poll(0.05) == []
        assert waiting.progress() == "127.0.0.1 does not answer"
        backend.forget(waiting)
        waiting.close()
        connect(backend)


def test_a_silent_address_without_an_alternative_is_tried_again() -> None:
    with silent_address() as silent, backend_of(silent) as backend:
        for _ in range(2):
            waiting = resolved(backend)
            assert not waiting.advance()
            backend.forget(waiting)
            waiting.close()


def test_a_socket_connected_to_itself_is_refused() -> None:
    """It happens when a port of the ephemeral range without a listener is dialled."""
    host, port = "127.0.0.1", free_port()
    if not can_choose_ports():
        pytest.skip("needs IP_LOCAL_PORT_RANGE (Linux 6.3) to choose the port of its own end")
    [first_and_last] = struct.unpack("i", struct.pack("HH", port, port))
    only_that_port = (socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, first_and_last)
    poller = Poller()
    transport = TcpTransport("me", [ipv4(host, port)], [only_that_port], poller)
    transport.start()
    with pytest.raises(ConnectionLost, match="refused"):
        until_connected(transport, lambda: poller.wait(LONG))
    transport.close()
    poller.close()


def can_choose_ports() -> bool:
    with socket.socket() as sock:
        try:
            sock.getsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE)
        except OSError:
            return False
    return True


@pytest.mark.alone  # the signal would end the process
def test_sending_to_a_reset_connection_raises_no_sigpipe(listener: socket.socket) -> None:
    """Python ignores SIGPIPE, but a program that embeds it may not."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    with backend_of(ipv4(*listener.getsockname())) as backend:
        transport = connect(backend)
        peer, _ = listener.accept()
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        peer.close()
        for _ in range(2):  # the first error is a reset, the next one a broken pipe
            backend.poll(LONG)
            with pytest.raises(ConnectionLost, match="broke"):
                transport.send([b"x"])
        transport.close()


@pytest.mark.alone  # a descriptor of another test might be closed, and its number reused
def test_socket_options_are_set(listener: socket.socket) -> None:
    """Read from the only new file descriptor."""
    gc.collect()
    backend = TcpBackend(send_buffer_bytes=40_000, receive_buffer_bytes=50_000)
    before = open_files()
    transport = connect(backend, *listener.getsockname())
    [number] = open_files() - before
    with socket.socket(fileno=os.dup(int(number))) as sock:
        # The kernel doubles the sizes to make room for its own records.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 80_000
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 100_000
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert not os.get_blocking(int(number))
    transport.close()
    backend.close()


@pytest.mark.alone  # the collector closes descriptors of other tests
def test_every_file_descriptor_is_closed(listener: socket.socket) -> None:
    gc.collect()
    before = open_files()
    backend = TcpBackend()
    transports = [connect(backend, *listener.getsockname()) for _ in range(3)]
    with pytest.raises(ConnectionLost):
        connect(backend, "127.0.0.1", free_port())
    assert len(open_files()) > len(before)
    transports[0].close()
    backend.close()
    for transport in transports:
        transport.close()
    assert open_files() == before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the timeout has a thread
def test_a_forked_child_may_abandon_the_backend(listener: socket.socket) -> None:
    backend = TcpBackend()
    transport = connect(backend, *listener.getsockname())
    server, _ = listener.accept()
    with server:
        child = os.fork()
        if child == 0:
            try:
                backend.abandon()
                backend.wake()
                transport.close()
                backend.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        backend.watch(transport, write=False)
        assert transport.send([b"still here"]) == 10
        assert server.recv(100) == b"still here"
        server.sendall(b"good")
        assert backend.poll(LONG) == [(transport, True, False)]
        assert transport.receive(100) == b"good"
        assert backend.poll(0) == []  # the child's wake() did not reach us
    backend.close()


def open_files() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir() if entry.exists()}


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        peer, _ = listener.accept()
    return ours, peer


def test_adopting_a_reset_socket_fails() -> None:
    ours, peer = connected()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    peer.close()
    with pytest.raises(ConnectionResetError):
        ours.recv(1)  # waits for the reset
    poller = Poller()
    transport = TcpTransport("host:9092", None, [], poller)
    assert not transport.adopt(ours)
    assert ours.fileno() == -1
    with pytest.raises(ConnectionLost, match="host:9092 broke at once"):
        transport.advance()
    transport.close()
    poller.close()


@pytest.fixture
def unix(tmp_path: Path) -> Iterator[UnixBackend]:
    (tmp_path / "in").mkdir()
    made = UnixBackend(str(tmp_path / "in" / "{host}" / "socket"))
    yield made
    made.close()


@pytest.mark.parametrize("host", ["../in", "..", ".", "", "/", "broker/..", "a\0b", "a/b"])
def test_a_host_outside_the_path_is_refused(host: str, unix: UnixBackend, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        with pytest.raises(ConnectionLost, match="does not fit into the path"):
            unix.dial(host, 9092)


@pytest.mark.parametrize("host", ["broker-1", "...", "..a", "10.0.0.1", "::1"])
def test_a_socket_path_may_depend_on_the_host(host: str, unix: UnixBackend, tmp_path: Path) -> None:
    path = tmp_path / "in" / host / "socket"
    path.parent.mkdir()
    same_for_all = UnixBackend(str(path))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        assert unix.dial(host, 9092).advance()
        assert same_for_all.dial("../any", 1).advance()
    same_for_all.close()


@pytest.mark.parametrize(
    "way", [{"transport": "unix", "unix_socket_path": "/p"}, {"proxy_url": "http://proxy:1"}]
)
def test_busy_polling_works_with_every_kind_of_socket(way: dict[str, str]) -> None:
    backend = open_network(ProducerConfig.from_options({"busy_poll_us": 50, **way}))
    tcp = TcpBackend(busy_poll=50e-6)  # which does not on a single processor
    assert getattr(backend, "spins", None) is tcp.spins
    tcp.close()
    backend.close()


class SlowNames:
    """Resolves every name to ``listener``; those that begin with "slow" wait for ``may_answer``."""

    def __init__(self, listener: socket.socket) -> None:
        self.may_answer = threading.Event()
        self.asked: list[str] = []
        self.error: Exception | None = None
        self._address = Address(socket.AF_INET, listener.getsockname())

    def resolve(self, host: str, port: int) -> list[Address]:
        self.asked.append(host)
        if host.startswith("slow"):
            assert self.may_answer.wait(LONG)
        if self.error is not None:
            raise self.error
        return [self._address]


@pytest.fixture
def names() -> Iterator[SlowNames]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        names = SlowNames(listener)
        yield names
        names.may_answer.set()
        for thread in threading.enumerate():
            if thread.name.startswith("kprod-resolver"):
                thread.join(LONG)


@pytest.fixture
def slow_backend(names: SlowNames) -> Iterator[TcpBackend]:
    slow_backend = TcpBackend(resolver=names.resolve)
    yield slow_backend
    slow_backend.close()


def test_others_connect_during_a_slow_lookup(names: SlowNames, slow_backend: TcpBackend) -> None:
    slow = slow_backend.dial("slow", 1)
    until_connected(slow_backend.dial("fast", 1), partial(slow_backend.poll, LONG))
    assert not slow.advance()
    assert slow.progress() == "the name is not resolved yet"
    assert (slow.send([b"x"]), slow.receive(1)) == (0, None)
    names.may_answer.set()
    until_connected(slow, partial(slow_backend.poll, LONG))


def test_simultaneous_lookups_are_shared(names: SlowNames, slow_backend: TcpBackend) -> None:
    first, second = slow_backend.dial("slow", 1), slow_backend.dial("slow", 1)
    slow_backend.forget(first)  # as after a timeout
    first.close()
    third = slow_backend.dial("slow", 1)
    names.may_answer.set()
    until_connected(second, partial(slow_backend.poll, LONG))
    until_connected(third, partial(slow_backend.poll, LONG))
    assert names.asked == ["slow"]
    until_connected(slow_backend.dial("slow", 1), partial(slow_backend.poll, LONG))
    assert names.asked == ["slow", "slow"]
    with pytest.raises(ConnectionLost, match="closed"):
        first.advance()


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        UnicodeError("label too long"),
        ZeroDivisionError("in the resolver"),
    ],
)
def test_the_error_has_the_cause_of_a_failed_lookup(
    names: SlowNames, slow_backend: TcpBackend, error: Exception
) -> None:
    names.error = error
    transport = slow_backend.dial("slow.example", 9092)
    names.may_answer.set()
    with pytest.raises(ConnectionLost) as raised:
        until_connected(transport, partial(slow_backend.poll, LONG))
    assert str(raised.value) == f"cannot resolve slow.example:9092: {error}"
    assert raised.value.__cause__ is error


def test_an_ip_address_needs_no_lookup() -> None:
    before = threading.active_count()
    slow_backend = TcpBackend()
    for host in ("127.0.0.1", "::1"):
        transport = slow_backend.dial(host, 9)
        assert "resolved" not in transport.progress()
    assert threading.active_count() == before
    slow_backend.close()


def test_close_does_not_wait_for_a_lookup(names: SlowNames, slow_backend: TcpBackend) -> None:
    transport = slow_backend.dial("slow", 1)
    slow_backend.close()
    with pytest.raises(ConnectionLost, match="closed"):
        transport.advance()
    names.may_answer.set()  # a late answer is ignored


def test_finished_lookups_are_freed() -> None:
    answered, before = threading.Semaphore(0), kept_lookups()
    lookups = NameLookups(lambda host, port: [Address(2, (host, port))], answered.release)
    for number in range(50):
        lookups.ask(f"agent-{number}", 9092)
        assert answered.acquire(timeout=LONG)
    assert kept_lookups() - before <= 2


def kept_lookups() -> int:
    gc.collect()
    return sum(isinstance(found, NameLookup) for found in gc.get_objects())


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_resolves_names_itself(names: SlowNames, slow_backend: TcpBackend) -> None:
    slow_backend.dial("slow", 1)
    child = os.fork()
    if child == 0:
        try:
            slow_backend.abandon()
            own = TcpBackend(resolver=names.resolve)
            until_connected(own.dial("fast", 1), partial(own.poll, LONG))
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
