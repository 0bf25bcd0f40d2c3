"""A transaction as a ``with`` block: committed at its end, aborted by any exception."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kprod.errors import KprodError
from kprod.types import NextStep

if TYPE_CHECKING:
    from kprod.transactional.prepared_transaction import PreparedTransaction
    from kprod.transactional.transaction_calls import TransactionCalls

log = logging.getLogger("kprod")

PREPARED = "prepared"


class Transaction:
    """One transaction of a producer. Not thread-safe itself; the producer's ``send`` is, as ever.

    ``outcome`` is ``"committed"`` or ``"aborted"`` after the block, ``"unknown"`` when a commit was
    asked for and nobody told what became of it, ``"prepared"`` after ``prepare``; before that it is
    None. The log says the same in one line.
    """

    def __init__(self, producer: TransactionCalls, timeout: float | None) -> None:
        self.outcome: str | None = None
        self._producer = producer
        self._timeout = timeout

    def send_offsets(self, offsets: Any, group_metadata: Any) -> None:
        """See ``KafkaProducer.send_offsets_to_transaction``."""
        self._producer.send_offsets_to_transaction(offsets, group_metadata, self._timeout)

    @classmethod
    def resume(
        cls,
        producer: TransactionCalls,
        prepared: PreparedTransaction,
        timeout: float | None = None,
    ) -> Self:
        """What another process has prepared, to be ended by ``commit`` or ``abort``.

        Internal, as ``prepare``. ``producer`` is new, with the transactional id of the other one.
        """
        producer.resume_transaction(prepared)
        resumed = cls(producer, timeout)
        resumed.outcome = PREPARED
        return resumed

    def prepare(self) -> PreparedTransaction:
        """Let the transaction wait, at the end of the block, for ``commit`` or ``abort``.

        Internal, see ``KafkaProducer.prepare_transaction``. An exception after it aborts, as ever.
        """
        prepared = self._producer.prepare_transaction(self._timeout)
        self._tell(PREPARED, None)
        return prepared

    def commit(self) -> None:
        """End what is prepared; ``commit_transaction`` says what it raises."""
        self._commit()

    def abort(self) -> None:
        """Give up what is prepared; ``abort_transaction`` says what it raises."""
        self._producer.abort_transaction(self._timeout)
        self._tell("aborted", None)

    def __enter__(self) -> Self:
        self._producer.begin_first_or_next(self._timeout)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None and self.outcome is None:
            self._commit()
        elif error is not None and self.outcome in (None, PREPARED):
            self._abort(error)

    def _commit(self) -> None:
        try:
            self._producer.commit_transaction(self._timeout)
        except KprodError as failure:
            if failure.next_step is not NextStep.ABORT:
                self._tell("unknown", failure)
                raise
            worse = self._abort(failure)
            if worse is not None and worse.next_step is not NextStep.RETRY_CALL:
                raise worse from failure  # it says what to do now
            raise
        self._tell("committed", None)

    def _abort(self, cause: BaseException) -> KprodError | None:
        """Abort because of ``cause``, which is what the application wants to see.

        Returns why the coordinator has not confirmed it, if it has not. It is aborted all the same,
        in time: nobody has asked for a commit, or that was refused.
        """
        unconfirmed: KprodError | None = None
        try:
            self._producer.abort_transaction(self._timeout)
        except KprodError as failure:
            unconfirmed = failure
            cause.add_note(f"its coordinator has not confirmed the end: {failure}")
        self._tell("aborted", cause)
        return unconfirmed

    def _tell(self, outcome: str, cause: BaseException | None) -> None:
        self.outcome = outcome
        what = self._producer.transaction_name
        if cause is None:
            log.info("%s was %s", what, outcome)
        elif outcome == "aborted":
            log.warning("%s was aborted: %s: %s", what, type(cause).__name__, cause)
        else:
            log.warning("whether %s was committed or aborted is not known: %s", what, cause)
