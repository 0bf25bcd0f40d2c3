"""The exception classes of ``kafka.errors``, with or without kafka-python.

All are subclasses of ``kprod.KprodError``. If kafka-python is installed, each class is also a
subclass of the class with the same name in ``kafka.errors``. ``translated`` returns the error of
this module for an error of ``kprod.errors``.
"""

from __future__ import annotations

import importlib
import re
import warnings
from types import ModuleType
from typing import Any, cast

from kprod import errors as native
from kprod.errors import KprodError
from kprod.types import Persisted


def theirs(name: str) -> ModuleType | None:
    """``kafka.<name>`` of an installed kafka-python of any version; None if there is none.

    Also None if the package cannot be imported, or if it is another package of that name.
    """
    try:
        with warnings.catch_warnings():  # its own deprecations do not concern our users
            warnings.simplefilter("ignore")
            found = importlib.import_module("kafka.errors")
            known = issubclass(found.KafkaError, Exception)
            return importlib.import_module(f"kafka.{name}") if known else None
    except Exception:
        return None


def also_theirs(kind: type, name: str) -> None:
    """Register ``kind`` with the abstract class of the same name in ``kafka.<name>``.

    Because of this, kafka-python's consumer accepts the deserializers of ``kprod.kafka``. Version 2
    of kafka-python has no such classes.
    """
    register = getattr(getattr(theirs(name), kind.__name__, None), "register", None)
    if callable(register):
        register(kind)


_THEIRS = theirs("errors")


class DerivedFromNamesake(type):
    """Makes a class inherit from the class with the same name in ``kafka.errors``, if any.

    ``except kafka.errors.X`` needs real inheritance, because ``except`` does not call
    ``__subclasscheck__``.
    """

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **rest: Any
    ) -> DerivedFromNamesake:
        namesake = getattr(_THEIRS, name, None)
        if isinstance(namesake, type) and issubclass(namesake, Exception):
            bases = (*bases, namesake)
        return super().__new__(mcs, name, bases, namespace, **rest)


class KafkaError(KprodError, metaclass=DerivedFromNamesake):
    """The base class of kafka-python's errors. Each of these is also a ``kprod.KprodError``.

    ``retriable``: the same call may succeed later. kprod adds ``persisted`` (whether the record may
    be stored) and ``number`` (the number of kprod's error). The message is that of kafka-python.
    kprod's own error is the ``__cause__``, and appears in the traceback.
    """

    number = ""
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
    """A temporary error: a retry may succeed."""

    retriable = True


class InvalidMetadataError(RetriableError):
    """The cluster's metadata is outdated; the producer requests it again."""

    invalid_metadata = True


class Cancelled(RetriableError):
    """The request was cancelled."""


class CommitFailedError(KafkaError):
    """Only consumers raise this."""


class IllegalArgumentError(KafkaError):
    """An argument has an invalid value."""


class IllegalStateError(KafkaError):
    """The call is not allowed in this state, for example because the producer is closed."""


class KafkaConfigurationError(KafkaError, ValueError):
    """An option is invalid, or contradicts another one."""


class KafkaConnectionError(InvalidMetadataError):
    """A connection could not be opened, or was lost."""


class KafkaProtocolError(KafkaError):
    """The peer does not speak the Kafka protocol."""


class CorrelationIdError(RetriableError, KafkaProtocolError):
    """A broker answered a request that was never sent."""


class InvalidReceiveError(KafkaProtocolError):
    """A broker sent a response of an invalid size."""


class KafkaTimeoutError(RetriableError):
    """A wait timed out."""


def still_being_sent(text: str) -> KafkaTimeoutError:
    """The error of a wait for records that are still being sent."""
    error = KafkaTimeoutError(text)
    error.persisted = Persisted.MAYBE
    return error


class MetadataEmptyBrokerList(RetriableError):
    """The cluster's metadata lists no brokers."""


class NoBrokersAvailable(KafkaTimeoutError):
    """No broker responded when the producer was created.

    kafka-python 2 raises NoBrokersAvailable, and kafka-python 3 raises KafkaTimeoutError. This
    class is a subclass of both, so that handlers for either of them work.
    """

    invalid_metadata = True


class NoOffsetForPartitionError(KafkaError):
    """Only consumers raise this."""


class LogTruncationError(KafkaError):
    """Only consumers raise this."""


class NodeNotReadyError(RetriableError):
    """The broker is not ready for requests yet."""


class UnknownBrokerIdError(KafkaError):
    """No broker has this id."""


class QuotaViolationError(KafkaError):
    """A metric has exceeded its quota."""


class StaleMetadata(InvalidMetadataError):
    """The cluster's metadata is too old."""


class TooManyInFlightRequests(RetriableError):
    """Too many requests to the broker are unanswered."""


class UnrecognizedBrokerVersion(KafkaError):
    """The broker supports no usable version of a request."""


class UnsupportedCodecError(KafkaError):
    """There is no codec for this compression type."""


class TransactionAbortedError(KafkaError):
    """The record's transaction was aborted."""


class BrokerResponseError(KafkaError):
    """A broker answered with the error code ``errno``, named ``message``."""

    errno: int | None = None
    message: str | None = None
    description: str | None = None

    def __str__(self) -> str:
        return f"[Error {self.errno}] {super().__str__()}"


class AuthorizationError(BrokerResponseError):
    """The client is not authorized to do this."""


BY_CODE: dict[int, type[BrokerResponseError]] = {}
"""The class of each broker error code."""


def _refusal(
    name: str, errno: int, kind: type[KafkaError] | None = None, message: str = ""
) -> type[BrokerResponseError]:
    """Make the class of a code, with ``kind`` as its other base. ``message`` is often the name."""
    said = message or re.sub("(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Error")).upper()
    words = said.replace("_", " ").capitalize()
    stated = {"errno": errno, "message": said, "description": words, "__doc__": f"{words}."}
    bases = (BrokerResponseError,) if kind is None else (kind, BrokerResponseError)
    made = DerivedFromNamesake(
        name, bases, {**stated, "__module__": __name__, "__qualname__": name}
    )
    BY_CODE[errno] = cast(type[BrokerResponseError], made)
    return BY_CODE[errno]


def for_code(code: int) -> type[BrokerResponseError]:
    """The class of a code. For an unknown code, it is a new subclass of UnknownError."""
    known = BY_CODE.get(code)
    if known is not None:
        return known
    return type("UnrecognizedBrokerError", (UnknownError,), {"errno": code})


UnknownError = _refusal("UnknownError", -1)
NoError = _refusal("NoError", 0, message="NO_ERROR")
OffsetOutOfRangeError = _refusal("OffsetOutOfRangeError", 1)
CorruptRecordError = _refusal("CorruptRecordError", 2, message="CORRUPT_MESSAGE")
UnknownTopicOrPartitionError = _refusal("UnknownTopicOrPartitionError", 3, InvalidMetadataError)
InvalidFetchRequestError = _refusal("InvalidFetchRequestError", 4, message="INVALID_FETCH_SIZE")
LeaderNotAvailableError = _refusal("LeaderNotAvailableError", 5, InvalidMetadataError)
NotLeaderForPartitionError = _refusal("NotLeaderForPartitionError", 6, InvalidMetadataError)
RequestTimedOutError = _refusal("RequestTimedOutError", 7, RetriableError)
BrokerNotAvailableError = _refusal("BrokerNotAvailableError", 8)
ReplicaNotAvailableError = _refusal("ReplicaNotAvailableError", 9, InvalidMetadataError)
MessageSizeTooLargeError = _refusal("MessageSizeTooLargeError", 10)
StaleControllerEpochError = _refusal("StaleControllerEpochError", 11)
OffsetMetadataTooLargeError = _refusal("OffsetMetadataTooLargeError", 12)
NetworkExceptionError = _refusal("NetworkExceptionError", 13, InvalidMetadataError)
CoordinatorLoadInProgressError = _refusal("CoordinatorLoadInProgressError", 14, RetriableError)
CoordinatorNotAvailableError = _refusal("CoordinatorNotAvailableError", 15, RetriableError)
NotCoordinatorError = _refusal("NotCoordinatorError", 16, RetriableError)
InvalidTopicError = _refusal("InvalidTopicError", 17)
RecordListTooLargeError = _refusal("RecordListTooLargeError", 18)
NotEnoughReplicasError = _refusal("NotEnoughReplicasError", 19, RetriableError)
NotEnoughReplicasAfterAppendError = _refusal(
    "NotEnoughReplicasAfterAppendError", 20, RetriableError
)
InvalidRequiredAcksError = _refusal("InvalidRequiredAcksError", 21)
IllegalGenerationError = _refusal("IllegalGenerationError", 22)
InconsistentGroupProtocolError = _refusal("InconsistentGroupProtocolError", 23)
InvalidGroupIdError = _refusal("InvalidGroupIdError", 24)
UnknownMemberIdError = _refusal("UnknownMemberIdError", 25)
InvalidSessionTimeoutError = _refusal("InvalidSessionTimeoutError", 26)
RebalanceInProgressError = _refusal("RebalanceInProgressError", 27)
InvalidCommitOffsetSizeError = _refusal("InvalidCommitOffsetSizeError", 28)
TopicAuthorizationFailedError = _refusal("TopicAuthorizationFailedError", 29, AuthorizationError)
GroupAuthorizationFailedError = _refusal("GroupAuthorizationFailedError", 30, AuthorizationError)
ClusterAuthorizationFailedError = _refusal(
    "ClusterAuthorizationFailedError", 31, AuthorizationError
)
InvalidTimestampError = _refusal("InvalidTimestampError", 32)
UnsupportedSaslMechanismError = _refusal("UnsupportedSaslMechanismError", 33)
IllegalSaslStateError = _refusal("IllegalSaslStateError", 34)
UnsupportedVersionError = _refusal("UnsupportedVersionError", 35)
TopicAlreadyExistsError = _refusal("TopicAlreadyExistsError", 36)
InvalidPartitionsError = _refusal("InvalidPartitionsError", 37)
InvalidReplicationFactorError = _refusal("InvalidReplicationFactorError", 38)
InvalidReplicationAssignmentError = _refusal("InvalidReplicationAssignmentError", 39)
InvalidConfigurationError = _refusal("InvalidConfigurationError", 40, message="INVALID_CONFIG")
NotControllerError = _refusal("NotControllerError", 41, RetriableError)
InvalidRequestError = _refusal("InvalidRequestError", 42)
UnsupportedForMessageFormatError = _refusal("UnsupportedForMessageFormatError", 43)
PolicyViolationError = _refusal("PolicyViolationError", 44)
OutOfOrderSequenceNumberError = _refusal("OutOfOrderSequenceNumberError", 45)
DuplicateSequenceNumberError = _refusal("DuplicateSequenceNumberError", 46)
InvalidProducerEpochError = _refusal("InvalidProducerEpochError", 47)
InvalidTxnStateError = _refusal("InvalidTxnStateError", 48)
InvalidProducerIdMappingError = _refusal("InvalidProducerIdMappingError", 49)
InvalidTransactionTimeoutError = _refusal("InvalidTransactionTimeoutError", 50)
ConcurrentTransactionsError = _refusal("ConcurrentTransactionsError", 51, RetriableError)
TransactionCoordinatorFencedError = _refusal("TransactionCoordinatorFencedError", 52)
TransactionalIdAuthorizationFailedError = _refusal(
    "TransactionalIdAuthorizationFailedError", 53, AuthorizationError
)
SecurityDisabledError = _refusal("SecurityDisabledError", 54)
OperationNotAttemptedError = _refusal("OperationNotAttemptedError", 55)
KafkaStorageError = _refusal(
    "KafkaStorageError", 56, InvalidMetadataError, message="KAFKA_STORAGE_ERROR"
)
LogDirNotFoundError = _refusal("LogDirNotFoundError", 57)
SaslAuthenticationFailedError = _refusal("SaslAuthenticationFailedError", 58)
UnknownProducerIdError = _refusal("UnknownProducerIdError", 59)
ReassignmentInProgressError = _refusal("ReassignmentInProgressError", 60)
DelegationTokenAuthDisabledError = _refusal("DelegationTokenAuthDisabledError", 61)
DelegationTokenNotFoundError = _refusal("DelegationTokenNotFoundError", 62)
DelegationTokenOwnerMismatchError = _refusal("DelegationTokenOwnerMismatchError", 63)
DelegationTokenRequestNotAllowedError = _refusal("DelegationTokenRequestNotAllowedError", 64)
DelegationTokenAuthorizationFailedError = _refusal(
    "DelegationTokenAuthorizationFailedError", 65, AuthorizationError
)
DelegationTokenExpiredError = _refusal("DelegationTokenExpiredError", 66)
InvalidPrincipalTypeError = _refusal("InvalidPrincipalTypeError", 67)
NonEmptyGroupError = _refusal("NonEmptyGroupError", 68)
GroupIdNotFoundError = _refusal("GroupIdNotFoundError", 69)
FetchSessionIdNotFoundError = _refusal("FetchSessionIdNotFoundError", 70, RetriableError)
InvalidFetchSessionEpochError = _refusal("InvalidFetchSessionEpochError", 71, RetriableError)
ListenerNotFoundError = _refusal("ListenerNotFoundError", 72, InvalidMetadataError)
TopicDeletionDisabledError = _refusal("TopicDeletionDisabledError", 73)
FencedLeaderEpochError = _refusal("FencedLeaderEpochError", 74, InvalidMetadataError)
UnknownLeaderEpochError = _refusal("UnknownLeaderEpochError", 75, InvalidMetadataError)
UnsupportedCompressionTypeError = _refusal("UnsupportedCompressionTypeError", 76)
StaleBrokerEpochError = _refusal("StaleBrokerEpochError", 77)
OffsetNotAvailableError = _refusal("OffsetNotAvailableError", 78, RetriableError)
MemberIdRequiredError = _refusal("MemberIdRequiredError", 79)
PreferredLeaderNotAvailableError = _refusal(
    "PreferredLeaderNotAvailableError", 80, InvalidMetadataError
)
GroupMaxSizeReachedError = _refusal("GroupMaxSizeReachedError", 81)
FencedInstanceIdError = _refusal("FencedInstanceIdError", 82)
EligibleLeadersNotAvailableError = _refusal(
    "EligibleLeadersNotAvailableError", 83, InvalidMetadataError
)
ElectionNotNeededError = _refusal("ElectionNotNeededError", 84, InvalidMetadataError)
NoReassignmentInProgressError = _refusal("NoReassignmentInProgressError", 85)
GroupSubscribedToTopicError = _refusal("GroupSubscribedToTopicError", 86)
InvalidRecordError = _refusal("InvalidRecordError", 87)
UnstableOffsetCommitError = _refusal("UnstableOffsetCommitError", 88, RetriableError)
ThrottlingQuotaExceededError = _refusal("ThrottlingQuotaExceededError", 89, RetriableError)
ProducerFencedError = _refusal("ProducerFencedError", 90)
ResourceNotFoundError = _refusal("ResourceNotFoundError", 91)
DuplicateResourceError = _refusal("DuplicateResourceError", 92)
UnacceptableCredentialError = _refusal("UnacceptableCredentialError", 93)
InconsistentVoterSetError = _refusal("InconsistentVoterSetError", 94)
InvalidUpdateVersionError = _refusal("InvalidUpdateVersionError", 95)
FeatureUpdateFailedError = _refusal("FeatureUpdateFailedError", 96)
PrincipalDeserializationFailureError = _refusal("PrincipalDeserializationFailureError", 97)
SnapshotNotFoundError = _refusal("SnapshotNotFoundError", 98)
PositionOutOfRangeError = _refusal("PositionOutOfRangeError", 99)
UnknownTopicIdError = _refusal("UnknownTopicIdError", 100, InvalidMetadataError)
DuplicateBrokerRegistrationError = _refusal("DuplicateBrokerRegistrationError", 101)
BrokerIdNotRegisteredError = _refusal("BrokerIdNotRegisteredError", 102)
InconsistentTopicIdError = _refusal("InconsistentTopicIdError", 103, InvalidMetadataError)
InconsistentClusterIdError = _refusal("InconsistentClusterIdError", 104)
TransactionalIdNotFoundError = _refusal("TransactionalIdNotFoundError", 105)
FetchSessionTopicIdError = _refusal(
    "FetchSessionTopicIdError", 106, RetriableError, message="FETCH_SESSION_TOPIC_ID_ERROR"
)
IneligibleReplicaError = _refusal("IneligibleReplicaError", 107)
NewLeaderElectedError = _refusal("NewLeaderElectedError", 108)
OffsetMovedToTieredStorageError = _refusal("OffsetMovedToTieredStorageError", 109)
FencedMemberEpochError = _refusal("FencedMemberEpochError", 110)
UnreleasedInstanceIdError = _refusal("UnreleasedInstanceIdError", 111)
UnsupportedAssignorError = _refusal("UnsupportedAssignorError", 112)
StaleMemberEpochError = _refusal("StaleMemberEpochError", 113)
MismatchedEndpointTypeError = _refusal("MismatchedEndpointTypeError", 114)
UnsupportedEndpointTypeError = _refusal("UnsupportedEndpointTypeError", 115)
UnknownControllerIdError = _refusal("UnknownControllerIdError", 116)
UnknownSubscriptionIdError = _refusal("UnknownSubscriptionIdError", 117)
TelemetryTooLargeError = _refusal("TelemetryTooLargeError", 118)
InvalidRegistrationError = _refusal("InvalidRegistrationError", 119)
TransactionAbortableError = _refusal("TransactionAbortableError", 120)
InvalidRecordStateError = _refusal("InvalidRecordStateError", 121)
ShareSessionNotFoundError = _refusal("ShareSessionNotFoundError", 122, RetriableError)
InvalidShareSessionEpochError = _refusal("InvalidShareSessionEpochError", 123, RetriableError)
FencedStateEpochError = _refusal("FencedStateEpochError", 124)
InvalidVoterKeyError = _refusal("InvalidVoterKeyError", 125)
DuplicateVoterError = _refusal("DuplicateVoterError", 126)
VoterNotFoundError = _refusal("VoterNotFoundError", 127)
InvalidRegularExpressionError = _refusal("InvalidRegularExpressionError", 128)
RebootstrapRequiredError = _refusal("RebootstrapRequiredError", 129)
StreamsInvalidTopologyError = _refusal("StreamsInvalidTopologyError", 130)
StreamsInvalidTopologyEpochError = _refusal("StreamsInvalidTopologyEpochError", 131)
StreamsTopologyFencedError = _refusal("StreamsTopologyFencedError", 132)
ShareSessionLimitReachedError = _refusal("ShareSessionLimitReachedError", 133, RetriableError)

CorruptRecordException = CorruptRecordError
kafka_errors = BY_CODE


class IncompatibleBrokerVersion(UnsupportedVersionError):  # type: ignore[misc, valid-type]
    """The broker is too old for the request."""


_BY_KIND: tuple[tuple[type[native.KprodError], type[KafkaError]], ...] = (
    (native.ConfigError, KafkaConfigurationError),
    (native.RecordTooLargeError, MessageSizeTooLargeError),
    (native.KprodTimeoutError, KafkaTimeoutError),
    (native.SaslAuthenticationError, SaslAuthenticationFailedError),
    (native.ProducerFencedError, ProducerFencedError),
    (native.TransactionAbortableError, TransactionAbortableError),
    (native.TransactionAbortedError, TransactionAbortedError),
    (native.ConnectionLost, KafkaConnectionError),
    (native.ProtocolError, KafkaProtocolError),
    (native.UnsupportedVersionError, UnrecognizedBrokerVersion),
    (native.InvalidBatchError, InvalidRecordError),
    (native.IllegalStateError, IllegalStateError),
)
"""The first match applies."""


def translated(error: native.KprodError) -> Exception:
    """The error that kafka-python would raise, with ``error`` as its cause.

    The result has the same ``persisted``. Errors about invalid arguments are returned unchanged:
    they already are a ValueError or a TypeError, as in kafka-python.
    """
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, native.BrokerError):
        made: KafkaError = _of_broker(error)
    else:
        kind = next((theirs for ours, theirs in _BY_KIND if isinstance(error, ours)), None)
        if kind is None:
            if isinstance(error, ValueError | TypeError):
                return error
            kind = KafkaError
        made = kind(str(error))
    made.persisted, made.next_step, made.number = error.persisted, error.next_step, error.number
    made.__cause__ = error
    return made


def _of_broker(error: native.BrokerError) -> BrokerResponseError:
    kind = BY_CODE.get(error.code)
    detail = str(error).partition(": ")[2] or error.name
    if kind is not None:
        return kind(detail)
    made = UnknownError(detail)
    made.errno, made.message = error.code, error.name
    return made


__all__ = sorted(name for name, kind in globals().items() if isinstance(kind, DerivedFromNamesake))  # noqa: PLE0605
