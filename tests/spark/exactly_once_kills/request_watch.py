"""A proxy that recognises requests and their processes, so that kills happen at chosen requests."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, NamedTuple

from kprod.broker.protocol.api_key import ApiKey
from tests.support.loopback_proxy import LoopbackProxy, Streams, read_frame, write

HOST = b"127.0.0.1"
WORKER = re.compile(r"kprod-spark-.*-(\d+)")
"""The client id of a producer in a Spark task: the last part is its process."""
TRANSACTIONS = b"kprod-spark."
"""The prefix of transactional ids. The byte before it is the length of the string, plus 1."""
SHARD = re.compile(r"\.(\d+)(?:[/.]\d+)?$")
"""At the end of a transactional id, with or without an attempt."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The request ``number`` of its kind since the watch was armed, or its answer.

    ``answered``: after the broker has answered, before the client knows. ``dropped``: the request
    never reaches the broker; otherwise it does after the act.
    """

    api: ApiKey
    number: int
    answered: bool
    dropped: bool


class Sender(NamedTuple):
    """The sender of a request: the process of a task, and its shard."""

    process: int | None
    shard: int | None


Act = Callable[[Sender], None]
"""An action at the moment. It runs in a thread, and may arm the watch again."""
Accepts = Callable[[Sender], bool]


class RequestWatch:
    """Waits for one moment in all connections through its proxies. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()  # guards what is below
        self._armed: tuple[Moment, Act, Accepts] | None = None
        self._seen = 0
        self._acts = 0
        self._given_up = False

    def arm(self, moment: Moment, act: Act, accepts: Accepts = lambda _: True) -> None:
        """Do ``act`` at the next such moment of an accepted sender. Replaces an earlier call."""
        with self._changed:
            self._armed, self._seen = (moment, act, accepts), 0
            self._given_up = self._given_up and self._acts > 0

    def disarm(self) -> None:
        """Forget the moment, and wait for running acts."""
        with self._changed:
            self._armed, self._given_up = None, True
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: not self._acts, 90), "an act does not end"
            self._armed, self._given_up = None, False

    def await_event(self, event: threading.Event, seconds: float) -> bool:
        """Within an act: wait for ``event``, until the watch is disarmed or the time is over."""
        deadline = time.monotonic() + seconds
        while not event.wait(0.02) and not self._given_up and time.monotonic() < deadline:
            pass
        return event.is_set()

    def due(self, api: ApiKey, sender: Sender, *, answered: bool) -> tuple[Moment, Act] | None:
        """The moment, if this message is it. Call ``over`` after the act."""
        with self._changed:
            if self._armed is None:
                return None
            moment, act, accepts = self._armed
            if (moment.api, moment.answered) != (api, answered) or not accepts(sender):
                return None
            self._seen += 1
            if self._seen < moment.number:
                return None
            self._armed = None
            self._acts += 1
            return moment, act

    def over(self) -> None:
        with self._changed:
            self._acts -= 1
            self._changed.notify_all()


class WatchedBroker(LoopbackProxy):
    """The proxy of one broker; ``ports`` maps ports of brokers to those of their proxies.

    Addresses of brokers in answers are replaced by those of the proxies.
    """

    def __init__(self, watch: RequestWatch, upstream_port: int, ports: dict[int, int]) -> None:
        super().__init__(upstream_port)
        self.watch = watch
        self.ports = ports

    def ways(self, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        connection = _Connection(self, client.writer, server.writer)
        return [connection.pass_requests(client.reader), connection.pass_answers(server.reader)]


class _Connection:
    def __init__(
        self, proxy: WatchedBroker, to_client: asyncio.StreamWriter, to_broker: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._to_client = to_client
        self._to_broker = to_broker
        self._due: deque[tuple[ApiKey, Sender]] = deque()

    async def pass_requests(self, source: asyncio.StreamReader) -> None:
        while True:
            frame = await read_frame(source)
            api, sender = ApiKey(int.from_bytes(frame[4:6], "big")), _sender(frame)
            found = self._proxy.watch.due(api, sender, answered=False)
            if found is not None:
                await self._act(found[1], sender)
                if found[0].dropped:
                    return
            self._due.append((api, sender))
            await write(self._to_broker, frame)

    async def pass_answers(self, source: asyncio.StreamReader) -> None:
        while True:
            frame = await read_frame(source)
            api, sender = self._due.popleft()
            found = self._proxy.watch.due(api, sender, answered=True)
            if found is not None:
                await self._act(found[1], sender)
            for broker, proxy in self._proxy.ports.items():
                frame = frame.replace(_address(broker), _address(proxy))
            await write(self._to_client, frame)

    async def _act(self, act: Act, sender: Sender) -> None:
        """In a thread, so that other connections are not blocked."""

        def run() -> None:
            try:
                act(sender)
            finally:
                self._proxy.watch.over()

        await asyncio.to_thread(run)


def _sender(frame: bytes) -> Sender:
    length = max(int.from_bytes(frame[12:14], "big", signed=True), 0)
    worker = WORKER.fullmatch(frame[14 : 14 + length].decode(errors="replace"))
    at = frame.find(TRANSACTIONS, 14 + length)
    name = frame[at : at + frame[at - 1] - 1].decode(errors="replace") if at > 0 else ""
    shard = SHARD.search(name)
    return Sender(
        None if worker is None else int(worker[1]), None if shard is None else int(shard[1])
    )


def _address(port: int) -> bytes:
    return HOST + port.to_bytes(4, "big")
