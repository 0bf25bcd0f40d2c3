"""The application's interceptors, and closing everything that it plugged in."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any

from kprod.errors import RecordTypeError
from kprod.intake.arguments import check_record
from kprod.types import ProducerRecord, RecordMetadata

_log = logging.getLogger("kprod.intake.interceptors")


class _Inside(threading.local):
    """Which kinds of hooks this thread is currently running."""

    sending: bool = False
    telling: bool = False


class Interceptors:
    """The chain of one producer, in order (Kafka's ``ProducerInterceptors``).

    An interceptor has any of the hooks ``on_send(record) -> record``,
    ``on_acknowledgement(metadata)`` and ``on_send_error(record, error)``. As in Kafka, ``on_send``
    sees the partition that the application named, or None, because the partition is chosen after
    the hooks, which may change the key. The record passed to ``on_send_error`` has its partition if
    one was chosen; metadata always has one.

    An exception of a hook is logged and suppressed. If a hook, or a handler of that log, sends
    records through the same producer, hooks of the same kind are not called for them.

    Thread-safe if the hooks are. ``on_send`` runs in the threads that call ``send``, and so does
    ``on_send_error`` for a rejected record. Results are reported where callbacks run.
    """

    def __init__(self, interceptors: Iterable[Any] = ()) -> None:
        chain = tuple(interceptors)
        self._on_send = _hooks(chain, "on_send")
        self._on_acknowledgement = _hooks(chain, "on_acknowledgement")
        self._on_send_error = _hooks(chain, "on_send_error")
        self._inside = _Inside()

    @property
    def change_records(self) -> bool:
        """Whether any hook may change records before they are queued."""
        return bool(self._on_send)

    @property
    def watch_queueing(self) -> bool:
        """Whether any hook sees records before they are queued, or those that are not queued."""
        return bool(self._on_send or self._on_send_error)

    @property
    def watch_outcomes(self) -> bool:
        """Whether any hook has to be notified of the result of a record that is sent now."""
        # A hook that sends when it is notified would be notified of that as well, without an end.
        return bool(self._on_acknowledgement or self._on_send_error) and not self._inside.telling

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record as the hooks change it.

        A hook that raises, or returns an invalid record, has no effect.
        """
        # A hook that sends would enter the chain again, as would a log handler that sends what is
        # logged of a failing hook, and so on without an end. The same holds in _tell.
        if not self._on_send or self._inside.sending:
            return record
        self._inside.sending = True
        try:
            for hook in self._on_send:
                record = _changed(hook, record)
        finally:
            self._inside.sending = False
        return record

    def on_acknowledgement(self, metadata: RecordMetadata) -> None:
        """Notify the hooks that a record was stored (with ``acks=0``: handed to the network)."""
        self._tell(self._on_acknowledgement, metadata)

    def on_send_error(self, record: ProducerRecord, error: BaseException) -> None:
        """Notify the hooks that a record was rejected or not delivered."""
        self._tell(self._on_send_error, record, error)

    def follow(self, record: ProducerRecord, future: Any) -> None:
        """Notify the hooks of the result of a queued record. The record names its partition."""
        future.add_callback(self.on_acknowledgement)
        future.add_errback(lambda error: self.on_send_error(record, error))

    def _tell(self, hooks: tuple[Any, ...], *outcome: Any) -> None:
        if not hooks or self._inside.telling:
            return
        self._inside.telling = True
        try:
            for hook in hooks:
                _call(hook, outcome)
        finally:
            self._inside.telling = False


def _hooks(chain: Iterable[Any], name: str) -> tuple[Any, ...]:
    found = (getattr(interceptor, name, None) for interceptor in chain)
    return tuple(hook for hook in found if callable(hook))


def _changed(hook: Any, record: ProducerRecord) -> ProducerRecord:
    try:
        changed = hook(record)
        return record if changed is record else _checked(changed)
    except Exception:
        _log.exception("%s failed; the record goes on as it was", _name(hook))
        return record


def _checked(changed: Any) -> ProducerRecord:
    if not isinstance(changed, ProducerRecord):
        raise RecordTypeError(f"on_send: expected a ProducerRecord, got {type(changed).__name__}")
    return check_record(changed)


def _call(hook: Any, outcome: tuple[Any, ...]) -> None:
    try:
        hook(*outcome)
    except Exception:
        _log.exception("%s failed; the outcome of the record stands", _name(hook))


def _name(hook: Any) -> str:
    return getattr(hook, "__qualname__", None) or type(hook).__qualname__


def closable(plugins: Iterable[Any]) -> list[Any]:
    """The plug-ins with a ``close()`` method, each once even if it is given twice.

    Classes are omitted, because they have nothing to close.
    """
    distinct = {id(plugin): plugin for plugin in plugins}.values()
    return [
        plugin
        for plugin in distinct
        if callable(_close_of(plugin)) and not isinstance(plugin, type)
    ]


def close_all(plugins: Iterable[Any]) -> None:
    """Call ``close()`` of each object that has it. Exceptions are logged; the others are closed."""
    for plugin in closable(plugins):
        _close(plugin)


def _close_of(plugin: Any) -> Any:
    return getattr(plugin, "close", None)


def _close(plugin: Any) -> None:
    try:
        plugin.close()
    except Exception:
        _log.exception("%s.close failed", type(plugin).__qualname__)
