"""The kinds of errors that users of kafka-python catch, with its package installed or without"""

from __future__ import annotations

from typing import Any

from kprod.errors import KprodError
from kprod.kafka.installed import theirs

_THEIRS = theirs("errors")


class Kin(type):
    """Makes a class inherit from the one of its name in ``kafka.errors``, where there is one.

    ``except kafka.errors.X`` asks for real inheritance: ``__subclasscheck__`` is not consulted.
    """

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **rest: Any
    ) -> Kin:
        namesake = getattr(_THEIRS, name, None)
        if isinstance(namesake, type) and issubclass(namesake, Exception):
            bases = (*bases, namesake)
        return super().__new__(mcs, name, bases, namespace, **rest)


class KafkaError(KprodError, metaclass=Kin):
    """The root of kafka-python's errors. Here each of them is a KprodError, too.

    ``retriable``: the same call may succeed later. ``persisted`` is kprod's own: whether the record
    may be in the log all the same.
    """

    retriable: bool = False
    invalid_metadata: bool = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)

    def __str__(self) -> str:
        said = Exception.__str__(self)
        return f"{type(self).__name__}: {said}" if self.args else type(self).__name__

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == getattr(other, "args", None)

    def __hash__(self) -> int:
        return hash((type(self), str(self)))


class RetriableError(KafkaError):
    """It may pass by itself."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """What is known of the cluster is old; it is asked for anew."""

    invalid_metadata = True


class Cancelled(RetriableError):
    """The request was given up."""


class CommitFailedError(KafkaError):
    """For consumers."""


class IllegalArgumentError(KafkaError):
    """An argument has a value it must not have."""


class IllegalStateError(KafkaError):
    """The call is not allowed now, for instance because the producer is closed."""


class KafkaConfigurationError(KafkaError, ValueError):
    """An option is wrong, or contradicts another one."""


class KafkaConnectionError(InvalidMetadataError):
    """A connection could not be made, or broke."""


class KafkaProtocolError(KafkaError):
    """The peer does not speak the Kafka protocol."""


class CorrelationIdError(RetriableError, KafkaProtocolError):
    """An answer to a question nobody has asked."""


class InvalidReceiveError(KafkaProtocolError):
    """A response of an impossible size."""


class KafkaTimeoutError(RetriableError):
    """A bounded wait has ended."""


class MetadataEmptyBrokerList(RetriableError):
    """The cluster told of no brokers."""


class NoBrokersAvailable(KafkaTimeoutError):
    """No broker has answered when the producer was made.

    Version 2 of kafka-python raises it by this name, version 3 a KafkaTimeoutError: it is both.
    """

    invalid_metadata = True


class NoOffsetForPartitionError(KafkaError):
    """For consumers."""


class LogTruncationError(KafkaError):
    """For consumers."""


class NodeNotReadyError(RetriableError):
    """The broker cannot be asked yet."""


class UnknownBrokerIdError(KafkaError):
    """There is no such broker."""


class QuotaViolationError(KafkaError):
    """A metric has passed its bound."""


class StaleMetadata(InvalidMetadataError):
    """What is known of the cluster is too old."""


class TooManyInFlightRequests(RetriableError):
    """The broker owes too many answers."""


class UnrecognizedBrokerVersion(KafkaError):
    """The broker speaks no version of a request that could be used."""


class UnsupportedCodecError(KafkaError):
    """There is no code for this compression."""


class TransactionAbortedError(KafkaError):
    """The record's transaction was aborted."""


class BrokerResponseError(KafkaError):
    """A broker has answered with an error code: ``errno``, whose name is ``message``."""

    errno: int | None = None
    message: str | None = None
    description: str | None = None

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class AuthorizationError(BrokerResponseError):
    """This client may not do that."""
