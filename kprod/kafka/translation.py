"""From kprod's errors to those that kafka-python's users catch"""

from __future__ import annotations

from kprod import errors as native
from kprod.kafka import errors as face

_BY_KIND: tuple[tuple[type[native.KprodError], type[face.KafkaError]], ...] = (
    (native.ConfigError, face.KafkaConfigurationError),
    (native.RecordTooLargeError, face.MessageSizeTooLargeError),
    (native.KprodTimeoutError, face.KafkaTimeoutError),
    (native.ProducerFencedError, face.ProducerFencedError),
    (native.TransactionAbortableError, face.TransactionAbortableError),
    (native.TransactionAbortedError, face.TransactionAbortedError),
    (native.ConnectionLost, face.KafkaConnectionError),
    (native.ProtocolError, face.KafkaProtocolError),
    (native.UnsupportedVersionError, face.UnrecognizedBrokerVersion),
    (native.InvalidBatchError, face.InvalidRecordError),
    (native.IllegalStateError, face.IllegalStateError),
)
"""The first that fits counts."""


def translated(error: native.KprodError) -> Exception:
    """What kafka-python would have raised, caused by ``error``.

    ``persisted`` goes along. An argument that no record can carry stays what it is: a ValueError or
    a TypeError, as there.
    """
    if isinstance(error, face.KafkaError):
        return error
    if isinstance(error, native.BrokerError):
        told: face.KafkaError = _refusal(error)
    else:
        kind = next((theirs for ours, theirs in _BY_KIND if isinstance(error, ours)), None)
        if kind is None:
            if isinstance(error, ValueError | TypeError):
                return error
            kind = face.KafkaError
        told = kind(str(error))
    told.persisted, told.next_step = error.persisted, error.next_step
    told.__cause__ = error
    return told


def _refusal(error: native.BrokerError) -> face.BrokerResponseError:
    kind = face.BY_CODE.get(error.code)
    detail = str(error).partition(": ")[2] or error.name
    if kind is not None:
        return kind(detail)
    told = face.UnknownError(detail)
    told.errno, told.message = error.code, error.name
    return told
