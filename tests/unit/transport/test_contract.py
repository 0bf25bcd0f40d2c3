"""The contract of every backend and its transports, and the registry of backends."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pytest

from kprod.errors import ConfigError, ConnectionLost, IllegalStateError
from kprod.transport import register
from kprod.transport.base import Backend, Transport
from kprod.transport.memory import MemoryBackend
from kprod.transport.registry import open_backend
from kprod.transport.tcp import Address, TcpBackend, resolve
from tests.support.interruption import interruptible, repeat_until_interrupted
from tests.support.ports import free_port

RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER on, for no time: close() sends RST
UNKNOWN_HOST = "nowhere.invalid"
SMALL = 16_384


class MemoryNetwork:
    """A backend in memory with the server of its only connection; ``holds``: bytes in flight."""

    def __init__(self, send_chunk: int | None = None, receive_chunk: int | None = None) -> None:
        self.holds = send_chunk
        self.address = ("broker", 9092)
        self._received = b""
        self.backend = self._memory = MemoryBackend(
            {self.address: lambda: self},
            send_chunk=send_chunk,
            receive_chunk=receive_chunk,
            unresolvable={UNKNOWN_HOST},
        )

    def receive(self, data: bytes) -> bytes:
        """Called as the server's end of a connection."""
        self._received += data
        return b""

    def refusing(self) -> tuple[str, int]:
        """An address that refuses connections."""
        return "broker", 1

    def received(self, size: int) -> bytes:
        """The next ``size`` bytes from the client."""
        taken, self._received = self._received[:size], self._received[size:]
        return taken

    def answer(self, data: bytes) -> None:
        for connection in self._memory.connections:
            connection.deliver(data)

    def hang_up(self) -> None:
        for connection in self._memory.connections:
            connection.hang_up()

    def cut(self) -> None:
        for connection in self._memory.connections:
            connection.cut()

    def close(self) -> None:
        self.backend.close()


class TcpNetwork:
    """As ``MemoryNetwork``, with real sockets."""

    holds = 1_000_000  # more than four buffers of 16 KiB, as the system counts

    def __init__(self) -> None:
        self.backend = TcpBackend(
            send_buffer_bytes=SMALL, receive_buffer_bytes=SMALL, resolver=resolve_locally
        )
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(30)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # inherited by every connection
            self._listener.setsockopt(socket.SOL_SOCKET, option, SMALL)
        self.address = self._listener.getsockname()

    @cached_property
    def _peer(self) -> socket.socket:
        peer, _ = self._listener.accept()
        peer.settimeout(30)
        return peer

    def refusing(self) -> tuple[str, int]:
        return "127.0.0.1", free_port()

    def received(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            found += self._peer.recv(size - len(found))
        return found

    def answer(self, data: bytes) -> None:
        self._peer.sendall(data)

    def hang_up(self) -> None:
        self._peer.close()

    def cut(self) -> None:
        self._peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        self._peer.close()

    def close(self) -> None:
        self.backend.close()
        if "_peer" in vars(self):
            self._peer.close()
        self._listener.close()


def resolve_locally(host: str, port: int) -> list[Address]:
    """The system's resolver, except for the unknown name, which needs no network."""
    if host == UNKNOWN_HOST:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return resolve(host, port)


Network = MemoryNetwork | TcpNetwork
NETWORKS: dict[str, Callable[[], Network]] = {
    "tcp": TcpNetwork,
    "memory": MemoryNetwork,
    "memory-small-chunks": lambda: MemoryNetwork(send_chunk=7, receive_chunk=1),
}
LONG = 20.0  # seconds: never reached unless something is broken
Use = Callable[[], object]


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    network = NETWORKS[request.param]()
    yield network
    network.close()


def connected(network: Network) -> Transport:
    transport = network.backend.dial(*network.address)
    while not transport.advance():
        network.backend.poll(LONG)
    network.backend.watch(transport, write=False)
    return transport


def receive_exactly(backend: Backend, transport: Transport, size: int) -> bytes:
    found = b""
    while len(found) < size:
        chunk = transport.receive(size - len(found))
        if chunk is None:
            backend.poll(LONG)
        elif not chunk:
            break
        else:
            found += chunk
    return found


def end_of(backend: Backend, transport: Transport) -> bytes | None:
    while (found := transport.receive(100)) is None:
        backend.poll(LONG)
    return found


def ready_for(backend: Backend, transport: Transport, timeout: float) -> tuple[bool, bool]:
    for readiness in backend.poll(timeout):
        if readiness.transport is transport:
            return readiness.readable, readiness.writable
    return False, False


def use_until_lost(backend: Backend, *uses: Use) -> None:
    while True:
        for use in uses:
            use()
        backend.poll(0.01)


def test_a_dialled_transport_is_reported_until_it_is_connected(network: Network) -> None:
    transport = network.backend.dial(*network.address)
    reported = False
    while not transport.advance():
        reported = reported or ready_for(network.backend, transport, LONG) != (False, False)
    assert reported or ready_for(network.backend, transport, LONG)[1]
    assert transport.advance()
    network.backend.forget(transport)
    transport.close()


def test_the_error_of_a_refused_connection_names_address_and_cause(network: Network) -> None:
    host, port = network.refusing()
    transport = network.backend.dial(host, port)
    with pytest.raises(ConnectionLost) as raised:
        use_until_lost(network.backend, transport.advance)
    assert f"{host}:{port}" in str(raised.value)
    assert "refused" in str(raised.value)
    with pytest.raises(ConnectionLost, match="refused"):
        transport.advance()
    network.backend.forget(transport)
    transport.close()


def test_the_error_names_a_host_that_cannot_be_resolved(network: Network) -> None:
    with pytest.raises(ConnectionLost, match=f"cannot resolve {UNKNOWN_HOST}:9092"):
        use_until_lost(network.backend, network.backend.dial(UNKNOWN_HOST, 9092).advance)


def test_bytes_arrive_in_order(network: Network) -> None:
    transport = connected(network)
    network.answer(b"some bytes, ")
    network.answer(b"and more")
    assert receive_exactly(network.backend, transport, 20) == b"some bytes, and more"
    assert transport.receive(10) is None


def test_more_buffers_than_the_system_takes_at_once_are_sent(network: Network) -> None:
    transport = connected(network)
    buffers: list[bytes | memoryview] = [bytes([at % 251]) for at in range(2500)]
    whole = b"".join(buffers)
    network.backend.watch(transport, write=True)
    while buffers:
        taken = transport.send(buffers)
        del buffers[:taken]
        network.backend.poll(LONG)
    assert network.received(len(whole)) == whole


def test_a_full_pipe_takes_nothing_more_until_it_is_drained(network: Network) -> None:
    payload = bytes(range(256)) * (4 * (network.holds or 1000) // 256 + 1)
    transport = connected(network)
    network.backend.watch(transport, write=True)
    sent = 0
    while taken := transport.send([memoryview(payload)[sent:]]):
        sent += taken
    assert (sent < len(payload)) == (network.holds is not None)
    found = b""
    while len(found) < len(payload):
        found += network.received(sent - len(found))
        network.backend.poll(LONG)
        sent += transport.send([memoryview(payload)[sent:]])
        network.backend.watch(transport, write=True)
    assert found == payload


def test_bytes_before_the_end_of_the_connection_are_received(network: Network) -> None:
    transport = connected(network)
    network.answer(b"last words")
    network.hang_up()
    assert receive_exactly(network.backend, transport, 10) == b"last words"
    assert end_of(network.backend, transport) == b""
    assert ready_for(network.backend, transport, LONG)[0]


def test_a_reset_connection_is_reported_and_lost(network: Network) -> None:
    host, port = network.address
    transport = connected(network)
    network.cut()
    while not ready_for(network.backend, transport, LONG)[0]:
        pass
    with pytest.raises(ConnectionLost, match=f"{host}:{port}.*reset"):
        end_of(network.backend, transport)


def test_a_closed_transport_raises(network: Network) -> None:
    transport = connected(network)
    network.backend.forget(transport)
    transport.close()
    transport.close()
    uses: list[Use] = [partial(transport.send, [b"x"]), partial(transport.receive, 1)]
    for use in [*uses, transport.advance]:
        with pytest.raises(ConnectionLost, match="closed"):
            use()
    assert network.backend.poll(0) == []


def test_writability_is_reported_only_on_request(network: Network) -> None:
    transport = connected(network)
    assert ready_for(network.backend, transport, 0) == (False, False)
    network.backend.watch(transport, write=True)
    assert ready_for(network.backend, transport, LONG) == (False, True)
    network.backend.watch(transport, write=False)
    assert ready_for(network.backend, transport, 0) == (False, False)


def test_a_forgotten_transport_is_not_reported(network: Network) -> None:
    transport = connected(network)
    network.backend.watch(transport, write=True)
    network.backend.forget(transport)
    network.backend.forget(transport)
    assert network.backend.poll(0) == []
    network.backend.watch(transport, write=True)
    assert ready_for(network.backend, transport, LONG) == (False, True)
    transport.close()


def test_unread_bytes_are_reported_again(network: Network) -> None:
    transport = connected(network)
    network.answer(b"ab")
    while not ready_for(network.backend, transport, LONG)[0]:
        pass
    assert ready_for(network.backend, transport, 0)[0]
    receive_exactly(network.backend, transport, 2)
    assert not ready_for(network.backend, transport, 0)[0]


def test_wake_before_poll_ends_it_once(network: Network) -> None:
    for _ in range(5):
        network.backend.wake()
    started = time.monotonic()
    assert network.backend.poll(LONG) == []
    assert time.monotonic() - started < LONG / 2
    started = time.monotonic()
    assert network.backend.poll(0.05) == []
    assert time.monotonic() - started >= 0.04


def test_no_wake_is_lost(network: Network) -> None:
    """Two threads alternate: a lost wake-up would stop both."""
    count = 200
    mine = threading.Semaphore(0)

    def answer() -> None:
        for _ in range(count):
            mine.acquire()
            network.backend.wake()

    other = threading.Thread(target=answer)
    other.start()
    for _ in range(count):
        mine.release()
        started = time.monotonic()
        network.backend.poll(LONG)
        assert time.monotonic() - started < LONG / 2
    other.join()


def test_a_closed_backend_raises(network: Network) -> None:
    transport = connected(network)
    network.backend.close()
    with pytest.raises(ConnectionLost, match="closed"):
        transport.send([b"x"])
    with pytest.raises(IllegalStateError):
        network.backend.poll(0)
    with pytest.raises(IllegalStateError):
        network.backend.dial(*network.address)
    network.backend.forget(transport)
    transport.close()


def test_waking_and_closing_at_once(network: Network) -> None:
    stop = threading.Event()

    def wake() -> None:
        while not stop.is_set():
            network.backend.wake()

    with ThreadPoolExecutor(3) as pool:
        wakers = [pool.submit(wake) for _ in range(3)]
        for _ in range(20):
            network.backend.poll(0.001)
        network.backend.close()
        stop.set()
        for waker in wakers:
            waker.result(LONG)


def test_an_interrupted_wake_leaves_poll_usable() -> None:
    backend = MemoryBackend({})
    with interruptible():
        for number in range(500):
            repeat_until_interrupted(backend.wake, 0.0002 + number * 1e-7)
            polling = threading.Thread(target=backend.poll, args=(0,), daemon=True)
            polling.start()
            polling.join(20)
            assert not polling.is_alive(), "an interrupted call still holds the lock"


def test_the_last_registration_of_a_name_counts() -> None:
    made: list[str] = []

    def factory_of(word: str) -> MemoryBackend:
        made.append(word)
        return MemoryBackend({})

    register("test-transport", lambda **options: factory_of("first"))
    register("test-transport", lambda **options: factory_of(options["word"]))
    open_backend("test-transport", word="second")
    assert made == ["second"]


@pytest.mark.parametrize(("name", "factory"), [("", MemoryBackend), ("named", "not callable")])
def test_an_invalid_registration_is_refused(name: str, factory: Any) -> None:
    with pytest.raises(ConfigError, match="transport"):
        register(name, factory)


def install(folder: Path, target: str) -> None:
    """Install a package whose entry point "parcel" is ``target``."""
    info = folder / "parcels-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: parcels\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[kprod.transports]\nparcel = {target}\n")


def test_an_entry_point_is_a_transport_if_it_is_a_factory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "kprod.transport.memory:MemoryBackend")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert isinstance(open_backend("parcel", listeners={}), MemoryBackend)
    (tmp_path / "other").mkdir()
    install(tmp_path / "other", "kprod.transport.memory:__doc__")
    monkeypatch.syspath_prepend(str(tmp_path / "other"))
    with pytest.raises(ConfigError, match=r"'parcel'.*cannot be called"):
        open_backend("parcel")


def test_the_error_for_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'memry' is unknown.*tcp.*did you mean 'memory'\?"):
        open_backend("memry")
    with pytest.raises(ConfigError, match=r"'xyz' is unknown, there are memory, proxy, tcp"):
        open_backend("xyz")
    for name, instead in (("memory", "pass a MemoryBackend"), ("proxy", "set proxy_url")):
        with pytest.raises(ConfigError, match=rf"transport '{name}': {instead}"):
            open_backend(name)
