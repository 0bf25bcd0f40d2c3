"""Every request ends exactly once, with its own answer, whatever the broker sends."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kprod.errors import ConnectionLost, ProtocolError
from kprod.sender.connection import BrokerConnection
from kprod.wire.versions import ApiKey
from tests.unit.sender.exchanges import SETTINGS, RecordedExchange, able, answer, handshake_answer

LIMIT = 1000
IN_FLIGHT = 3


class Connection(RuleBasedStateMachine):
    """A client and its broker; ``owed`` are the requests that the broker has read.

    Time advances by a second with every step.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.connection = BrokerConnection(
            replace(SETTINGS, max_in_flight=IN_FLIGHT, max_frame_bytes=LIMIT)
        )
        self.connection.open(self.now)
        self.sent: list[RecordedExchange] = []  # all requests, oldest first
        self.leaving: list[tuple[RecordedExchange, int]] = []  # with the number of unsent bytes
        self.owed: list[RecordedExchange] = []
        self.expected: dict[RecordedExchange, list[tuple[str, object]]] = {}
        self.refused = False

    @initialize()
    def shake_hands(self) -> None:
        self.connection.wrote(sum(map(len, self.connection.pending_output())), self.now)
        self.connection.received(handshake_answer(0), self.now)

    @property
    def alive(self) -> bool:
        return not self.refused

    @precondition(lambda self: self.alive and able(self.connection, self.now))
    @rule(size=st.integers(1, 50), asks=st.booleans(), throttle=st.sampled_from([0, 0, 2500]))
    def send(self, size: int, *, asks: bool, throttle: int) -> None:
        self.now += 1
        api = ApiKey.METADATA if asks else ApiKey.PRODUCE
        request = RecordedExchange(
            bytes(size), api=api, expects_response=asks, throttle_ms=throttle
        )
        self.connection.send(request, self.now)
        self.sent.append(request)
        self.leaving.append((request, size))
        self.expected[request] = []

    @precondition(lambda self: self.alive and bool(self.leaving))
    @rule(most=st.integers(1, 60))
    def write(self, most: int) -> None:
        self.now += 1
        taken = min(most, sum(map(len, self.connection.pending_output())))
        self.connection.wrote(taken, self.now)
        while taken:
            request, size = self.leaving.pop(0)
            if taken < size:
                self.leaving.insert(0, (request, size - taken))
                return
            taken -= size
            if request.expects_response:
                self.owed.append(request)
            else:
                self.expected[request] = [("answered", b"")]

    @precondition(lambda self: self.alive and bool(self.owed))
    @rule(bodies=st.lists(st.binary(max_size=30), min_size=1, max_size=3), piece=st.integers(1, 99))
    def answer(self, bodies: list[bytes], piece: int) -> None:
        self.now += 1
        stream = b""
        for request, body in zip(list(self.owed), bodies, strict=False):
            self.owed.remove(request)
            self.expected[request] = [("answered", body)]
            stream += answer(request.correlation_ids[0], body)
        for start in range(0, len(stream), piece):
            self.connection.received(stream[start : start + piece], self.now)

    @precondition(lambda self: self.alive)
    @rule(
        number=st.integers(-1, 20) | st.integers(-(2**31), 2**31 - 1), body=st.binary(max_size=30)
    )
    def answer_wrongly(self, number: int, body: bytes) -> None:
        """Out of order, twice, or with an unknown correlation id."""
        oldest = self.owed[0].correlation_ids[0] if self.owed else None
        self._refuses(answer((number if number != oldest else number ^ 1) % 2**32, body))

    @precondition(lambda self: self.alive)
    @rule(size=st.integers(LIMIT + 1, 2**31 - 1) | st.integers(-(2**31), 3), rest=st.binary())
    def announce_an_invalid_size(self, size: int, rest: bytes) -> None:
        self._refuses(size.to_bytes(4, "big", signed=True) + rest)

    def _refuses(self, stream: bytes) -> None:
        try:
            self.connection.received(stream, self.now)
        except ProtocolError:
            self.refused = True
        else:
            raise AssertionError(f"{stream!r} was accepted")

    @rule()
    def lose_the_connection(self) -> None:
        self.connection.close(ConnectionLost("gone"), self.now)
        for request in self.owed:
            self.expected[request] = [("failed", True)]
        for request, _ in self.leaving:  # a broker ignores an incomplete request
            self.expected[request] = [("failed", False)]
        self.leaving.clear()
        self.owed.clear()
        self.refused = True

    @invariant()
    def every_request_has_ended_as_expected(self) -> None:
        for request in self.sent:
            assert request.ends == self.expected[request]

    @invariant()
    def what_is_in_flight_is_known(self) -> None:
        if self.sent:
            waiting = len(self.owed) + len(self.leaving)
            assert len(self.connection.unanswered) == waiting
            assert len(self.owed) <= IN_FLIGHT


TestConnection = Connection.TestCase
