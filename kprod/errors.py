"""The exceptions that kprod raises or sets on a future.

``KprodError`` is the base class. ``retriable`` says whether the cause may be temporary.
``persisted`` says whether the record may be stored: ``Persisted.NO`` means that it is certainly not
stored, and ``Persisted.MAYBE`` means that it may be stored. With idempotence, kprod never stores a
record twice.

Each class has a number, which never changes, and a row in ``kprod/cli/error_table.toml``. The
message of an error does not contain the number, because other errors quote the message. The command
``kprod errors`` accepts numbers and class names.

The error codes of brokers, their names and their classes follow Apache Kafka 4.2
(``org.apache.kafka.common.protocol.Errors``).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Self, TypeVar

from kprod.types import NextStep, Persisted, TopicPartition

__all__ = [
    "AuthenticationError",
    "BrokerError",
    "BufferFullError",
    "ConfigError",
    "ConnectionLost",
    "DeliveryError",
    "DeliveryTimeoutError",
    "ErrorCode",
    "IllegalStateError",
    "InvalidBatchError",
    "InvalidRecordError",
    "InvalidTopicError",
    "KafkaError",
    "KafkaTimeoutError",
    "KprodError",
    "KprodTimeoutError",
    "PartitionError",
    "ProducerClosedError",
    "ProducerFencedError",
    "ProtocolError",
    "RecordTooLargeError",
    "RecordTypeError",
    "SaslAuthenticationError",
    "SerializationError",
    "TlsAuthenticationError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionTimeoutError",
    "UnfinishedCallError",
    "UnsupportedVersionError",
]


class KprodError(Exception):
    """The base class of kprod's errors.

    Instances can be pickled and copied, including attributes, notes and ``__cause__``. If another
    process might not be able to unpickle the cause, a KprodError that describes the cause replaces
    it.
    """

    retriable: bool = False
    refreshes_metadata: bool = False
    persisted: Persisted = Persisted.NO
    next_step: NextStep | None = None
    """What to do after a transactional error."""
    topic_partition: TopicPartition | None = None
    """The partition that was chosen for a record which ``send`` then rejected."""
    record: int | None = None
    """The index of the row that a bulk call rejected."""
    number: str = "KP-1000"
    """The number under which ``docs/errors.md`` explains the error.

    Errors of the drop-in packages have the number of the original error, or an empty string."""

    def __init_subclass__(cls, number: str | None = None, **rest: Any) -> None:
        """Set the number. A class without its own number inherits that of its base class."""
        super().__init_subclass__(**rest)
        if number is not None:
            cls.number = number

    def with_number(self) -> str:
        """The text with the number, for logs and command output."""
        return f"{self} ({self.number})" if self.number else str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        state = {**_attributes(self), "__cause__": _portable(self.__cause__)}
        state.pop("delivery", None)  # the handle of a bulk call belongs to its process
        return _empty, (type(self), self.args), state

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        if state is not None:
            attributes = state.copy()
            self.__cause__ = attributes.pop("__cause__", None)
            self.__dict__.update(attributes)

    def __copy__(self) -> Self:
        again = _empty(type(self), self.args)
        again.__dict__.update(_attributes(self))
        again.__cause__ = self.__cause__
        return again


_E = TypeVar("_E", bound=KprodError)
_PLAIN = str | bytes | int | float | None


def _empty(kind: type[_E], args: tuple[Any, ...]) -> _E:
    """An instance made without calling ``__init__``, whose parameters differ between classes."""
    error = kind.__new__(kind)
    error.args = args
    return error


def _attributes(error: KprodError) -> dict[str, Any]:
    """A copy of the attributes, with a new list of notes."""
    attributes = error.__dict__.copy()
    if "__notes__" in attributes:
        attributes["__notes__"] = list(attributes["__notes__"])
    return attributes


def _portable(cause: BaseException | None) -> BaseException | None:
    """The cause in a form that any process can unpickle, even without the cause's class.

    It may be impossible to unpickle an application's exception, for example if its ``__init__``
    takes other arguments than it passes to the base class. The whole error would then be lost.
    """
    if cause is None or isinstance(cause, KprodError):
        return cause
    kind = type(cause)
    if kind.__module__ == "builtins" and all(isinstance(arg, _PLAIN) for arg in cause.args):
        with suppress(TypeError):  # it cannot be made by calling its class
            return kind(*cause.args)
    said = "(it has no text)"
    with suppress(Exception):
        said = str(cause)
    return KprodError(f"{kind.__module__}.{kind.__qualname__}: {said}")


def numbered(error: BaseException) -> str:
    """The text of any error, with the number if it is an error of kprod."""
    return error.with_number() if isinstance(error, KprodError) else str(error)


KafkaError = KprodError
"""Alias of ``KprodError``, the base class of all errors, including those of ``kprod.kafka``."""


# Raised before anything is queued -----------------------------------------------------------


class ConfigError(KprodError, ValueError, number="KP-1101"):
    """An option is unknown, has the wrong type, is out of range, or contradicts another one.

    ``unknown`` lists the unknown names as they were given.
    """

    unknown: tuple[str, ...] = ()


class InvalidTopicError(KprodError, ValueError, number="KP-1102"):
    """The topic name is invalid.

    A name has 1 to 249 characters of ``[a-zA-Z0-9._-]``, and is neither ``.`` nor ``..``.
    """


class InvalidRecordError(KprodError, ValueError, number="KP-1103"):
    """An argument of ``send`` has an invalid value."""


class RecordTypeError(KprodError, TypeError, number="KP-1104"):
    """An argument of ``send`` has an invalid type."""


class SerializationError(RecordTypeError, number="KP-1105"):
    """A key or value is not bytes and has no serializer, or the serializer failed."""


class PartitionError(KprodError, ValueError, number="KP-1106"):
    """The topic does not have this partition, or the partitioner returned an invalid one."""


class RecordTooLargeError(KprodError, ValueError, number="KP-1107"):
    """The record is larger than an option of the producer or of the topic allows.

    ``send`` raises it for ``max_request_size`` and ``buffer_memory``. The future raises it for the
    topic's ``max.message.bytes``.
    """


class IllegalStateError(KprodError, RuntimeError, number="KP-1201"):
    """The call is not allowed in the producer's current state."""


class UnfinishedCallError(IllegalStateError, number="KP-1202"):
    """Another transactional call is running or has timed out. Repeat that call first."""


class ProducerClosedError(IllegalStateError, number="KP-1203"):
    """The producer is closed, or it was closed before the record had a result."""


# Time ran out ---------------------------------------------------------------------------------


class KprodTimeoutError(KprodError, TimeoutError, number="KP-1301"):
    """A call timed out, or a record was not delivered in time.

    If a call that waits for the result of a record times out, kprod is still sending the record,
    and ``persisted`` is MAYBE.
    """

    retriable = True


def still_being_sent(text: str) -> KprodTimeoutError:
    """The error of a wait for records that are still being sent."""
    error = KprodTimeoutError(text)
    error.persisted = Persisted.MAYBE
    return error


class BufferFullError(KprodTimeoutError, number="KP-1302"):
    """No memory became free within ``max_block_ms``, or too many callbacks are waiting.

    If ``send`` raises this, nothing was queued. A bulk call may have queued some of its records;
    ``error.accepted`` is their number.
    """


class DeliveryTimeoutError(KprodTimeoutError, number="KP-1303"):
    """The record was not acknowledged within ``delivery_timeout_ms``.

    The time starts with the ``send`` of the first record in the same batch. ``persisted`` says
    whether the record may be stored.
    """


KafkaTimeoutError = KprodTimeoutError
"""Alias of ``KprodTimeoutError``, for programs that use ``kprod.KafkaProducer``.

``kprod.kafka.errors.KafkaTimeoutError`` is another class, and not a subclass of this one.
"""


# Transactions ---------------------------------------------------------------------------------


class TransactionTimeoutError(KprodTimeoutError, number="KP-1401"):
    """A transactional call timed out, and is still in progress. Repeat the same call."""

    persisted = Persisted.MAYBE
    next_step = NextStep.RETRY_CALL


class TransactionError(KprodError, number="KP-1402"):
    """A transaction failed. Unless this is a TransactionAbortableError, close the producer.

    ``next_step`` says whether a new producer can continue.
    """

    next_step = NextStep.CLOSE


class TransactionAbortableError(TransactionError, number="KP-1403"):
    """The transaction must be aborted. Then the producer can begin another transaction."""

    next_step = NextStep.ABORT


class ProducerFencedError(TransactionError, number="KP-1404"):
    """Another producer uses the same transactional id, or the coordinator fenced this producer.

    The coordinator fences a producer whose transaction takes longer than
    ``transaction_timeout_ms``.
    """

    next_step = NextStep.START_AGAIN


class TransactionAbortedError(KprodError, number="KP-1405"):
    """The transaction of the record was aborted.

    Consumers with ``isolation.level=read_committed`` never see the record. ``persisted`` is MAYBE
    if the record may be in the log, where other consumers see it.
    """


# Many records -----------------------------------------------------------------------------------


class DeliveryError(KprodError, number="KP-1501"):
    """Some of the records that were sent as one unit were not delivered.

    The unit is a bulk call or a Spark task. ``acknowledged``, ``failed`` and ``pending`` (no result
    yet) count its records. ``topic_partition`` and ``__cause__`` are those of the first record that
    was not delivered, or None if unknown. ``persisted`` is MAYBE if any of the undelivered records
    may be stored.
    """

    def __init__(
        self,
        message: str,
        *,
        acknowledged: int,
        failed: int,
        pending: int,
        topic_partition: TopicPartition | None = None,
    ) -> None:
        self.acknowledged = acknowledged
        self.failed = failed
        self.pending = pending
        self.topic_partition = topic_partition
        super().__init__(message)


# Between client and broker ----------------------------------------------------------------------


class ConnectionLost(KprodError, ConnectionError, number="KP-1601"):
    """A connection could not be opened or was lost, or the broker did not respond in time."""

    retriable = True
    refreshes_metadata = True


class AuthenticationError(KprodError, number="KP-1602"):
    """Broker and client could not authenticate each other.

    Retries do not help until the configuration is corrected. kprod still reconnects every
    ``reconnect_backoff_max_ms``. Until a connection succeeds, a ``send`` that needs metadata raises
    this error.
    """


class TlsAuthenticationError(AuthenticationError, number="KP-1603"):
    """A certificate was rejected, no TLS version or cipher is shared, or the peer has no TLS."""


class SaslAuthenticationError(AuthenticationError, number="KP-1604"):
    """The broker rejected the credentials or the mechanism, or did not prove its identity."""


class ProtocolError(KprodError, number="KP-1605"):
    """The peer sent bytes that are not the Kafka protocol.

    The connection is closed, and the request is retried.
    """

    retriable = True


class UnsupportedVersionError(KprodError, number="KP-1606"):
    """There is no version of a request that both the broker and kprod support."""


# Error responses of brokers ---------------------------------------------------------------------


class BrokerError(KprodError, number="KP-1701"):
    """A broker returned an error code.

    ``code`` is Kafka's number of the error, ``name`` is Kafka's name, and ``detail`` is the text
    that follows them in the message. Unknown numbers behave like ``UNKNOWN_SERVER_ERROR``. If the
    broker named the records that caused the error (KIP-467), ``record_errors`` maps their indexes
    to the broker's text or None.
    """

    record_errors: Mapping[int, str | None] = MappingProxyType({})

    def __init__(self, code: int, detail: str = "") -> None:
        self.code = code
        self.detail = detail
        self.name = ERROR_NAMES.get(code, f"UNKNOWN_ERROR_{code}")
        self.retriable = code in RETRIABLE
        self.refreshes_metadata = code in REFRESHES_METADATA
        unknown = code in MAYBE_WRITTEN or code not in ERROR_NAMES
        self.persisted = Persisted.MAYBE if unknown else Persisted.NO
        super().__init__(f"{self.name} ({code})" + (f": {detail}" if detail else ""))


class InvalidBatchError(KprodError, number="KP-1702"):
    """The broker rejected the batch because of other records. You can send this record again."""

    retriable = True


class ErrorCode(IntEnum):
    """The error codes of the Kafka protocol, with the names of Kafka's ``Errors``."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    UNKNOWN_MEMBER_ID = 25
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    OFFSET_NOT_AVAILABLE = 78
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    UNKNOWN_SUBSCRIPTION_ID = 117
    TRANSACTION_ABORTABLE = 120
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    REBOOTSTRAP_REQUIRED = 129
    SHARE_SESSION_LIMIT_REACHED = 133


ERROR_NAMES: dict[int, str] = {code.value: code.name for code in ErrorCode}

RETRIABLE: frozenset[int] = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

REFRESHES_METADATA: frozenset[int] = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

MAYBE_WRITTEN: frozenset[int] = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Codes after which the batch may be in the log although it was not acknowledged."""
