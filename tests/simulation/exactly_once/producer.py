"""A simulated producer: the real sender and the real transaction calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from kprod.errors import KprodError
from kprod.latch import Latch
from kprod.metrics import ProducerMetrics
from kprod.sender.engine import Engine
from kprod.sender.loop import Sender
from kprod.sender.transactions import State
from kprod.transactional.transaction_calls import TransactionCalls
from tests.simulation.app import App
from tests.simulation.backend import SimBackend
from tests.simulation.events import SimClock


@dataclass
class SimEngine:
    """Waits as ``Engine`` does, and runs the sender's loop meanwhile."""

    app: App
    clock: SimClock

    def refuse_inside(self, call: str) -> None:
        """No callback makes a call here."""

    def wait(self, latch: Latch, timeout: float) -> bool:
        self.app.wait(lambda: latch.is_open, self.clock.now + timeout)
        return latch.is_open

    def drain_callbacks(self, timeout: float) -> bool:
        """The sender's iteration has run them."""
        return True


class SimProducer(TransactionCalls):
    def __init__(
        self,
        number: int,
        sender: Sender,
        app: App,
        backend: SimBackend,
        clock: SimClock,
        max_block: float,
    ) -> None:
        self.number = number
        self.sender = sender
        self.app = app
        self.backend = backend
        self._transactions = sender.transactions
        self._engine = cast(Engine, SimEngine(app, clock))
        self._clock = clock
        self._max_block = max_block
        self._metrics = ProducerMetrics()
        self._has_vanished = False

    def _ensure_usable(self) -> None:
        """It is never used after close."""

    @property
    def state(self) -> State:
        if self._transactions is None:
            raise AssertionError("a producer without transactions")
        return self._transactions.state

    @property
    def error(self) -> KprodError | None:
        return None if self._transactions is None else self._transactions.error

    @property
    def identity(self) -> tuple[int, int] | None:
        return None if self._transactions is None else self._transactions.producer

    def close(self, timeout: float) -> None:
        """As ``KafkaProducer.close``: an open transaction is aborted."""
        if self._transactions is not None:
            self._transactions.close()
        self.app.close(timeout)

    def vanish(self) -> None:
        """The process is killed: its connections fall silent."""
        self.backend.close()
        self._has_vanished = True

    def forget(self) -> None:
        """Release the batches, which the garbage collector cannot find."""
        if self._has_vanished:
            self.sender.abort(KprodError("its process was killed"))
