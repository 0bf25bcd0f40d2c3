"""One class for every error code of a broker, by kafka-python's names"""

from __future__ import annotations

from typing import cast

from kprod.kafka.error_base import (
    AuthorizationError,
    BrokerResponseError,
    InvalidMetadataError,
    Kin,
    RetriableError,
)

BY_CODE: dict[int, type[BrokerResponseError]] = {}
"""The class of each code."""


def _refusal(
    name: str, errno: int, message: str, *kinds: type[Exception]
) -> type[BrokerResponseError]:
    """The class of one code. ``kinds``: its bases, where there is more to it than a refusal."""
    words = message.replace("_", " ").capitalize()
    stated = {"errno": errno, "message": message, "description": words, "__doc__": f"{words}."}
    bases = kinds or (BrokerResponseError,)
    made = Kin(name, bases, {**stated, "__module__": __name__, "__qualname__": name})
    BY_CODE[errno] = cast(type[BrokerResponseError], made)
    return BY_CODE[errno]


def for_code(code: int) -> type[BrokerResponseError]:
    """The class of a code; for one that has none a class of its own, under UnknownError."""
    known = BY_CODE.get(code)
    if known is not None:
        return known
    return type("UnrecognizedBrokerError", (UnknownError,), {"errno": code})


UnknownError = _refusal("UnknownError", -1, "UNKNOWN")
NoError = _refusal("NoError", 0, "NO_ERROR")
OffsetOutOfRangeError = _refusal("OffsetOutOfRangeError", 1, "OFFSET_OUT_OF_RANGE")
CorruptRecordError = _refusal("CorruptRecordError", 2, "CORRUPT_MESSAGE")
UnknownTopicOrPartitionError = _refusal(
    "UnknownTopicOrPartitionError",
    3,
    "UNKNOWN_TOPIC_OR_PARTITION",
    InvalidMetadataError,
    BrokerResponseError,
)
InvalidFetchRequestError = _refusal("InvalidFetchRequestError", 4, "INVALID_FETCH_SIZE")
LeaderNotAvailableError = _refusal(
    "LeaderNotAvailableError", 5, "LEADER_NOT_AVAILABLE", InvalidMetadataError, BrokerResponseError
)
NotLeaderForPartitionError = _refusal(
    "NotLeaderForPartitionError",
    6,
    "NOT_LEADER_FOR_PARTITION",
    InvalidMetadataError,
    BrokerResponseError,
)
RequestTimedOutError = _refusal(
    "RequestTimedOutError", 7, "REQUEST_TIMED_OUT", RetriableError, BrokerResponseError
)
BrokerNotAvailableError = _refusal("BrokerNotAvailableError", 8, "BROKER_NOT_AVAILABLE")
ReplicaNotAvailableError = _refusal(
    "ReplicaNotAvailableError",
    9,
    "REPLICA_NOT_AVAILABLE",
    InvalidMetadataError,
    BrokerResponseError,
)
MessageSizeTooLargeError = _refusal("MessageSizeTooLargeError", 10, "MESSAGE_SIZE_TOO_LARGE")
StaleControllerEpochError = _refusal("StaleControllerEpochError", 11, "STALE_CONTROLLER_EPOCH")
OffsetMetadataTooLargeError = _refusal(
    "OffsetMetadataTooLargeError", 12, "OFFSET_METADATA_TOO_LARGE"
)
NetworkExceptionError = _refusal(
    "NetworkExceptionError", 13, "NETWORK_EXCEPTION", InvalidMetadataError, BrokerResponseError
)
CoordinatorLoadInProgressError = _refusal(
    "CoordinatorLoadInProgressError",
    14,
    "COORDINATOR_LOAD_IN_PROGRESS",
    RetriableError,
    BrokerResponseError,
)
CoordinatorNotAvailableError = _refusal(
    "CoordinatorNotAvailableError",
    15,
    "COORDINATOR_NOT_AVAILABLE",
    RetriableError,
    BrokerResponseError,
)
NotCoordinatorError = _refusal(
    "NotCoordinatorError", 16, "NOT_COORDINATOR", RetriableError, BrokerResponseError
)
InvalidTopicError = _refusal("InvalidTopicError", 17, "INVALID_TOPIC")
RecordListTooLargeError = _refusal("RecordListTooLargeError", 18, "RECORD_LIST_TOO_LARGE")
NotEnoughReplicasError = _refusal(
    "NotEnoughReplicasError", 19, "NOT_ENOUGH_REPLICAS", RetriableError, BrokerResponseError
)
NotEnoughReplicasAfterAppendError = _refusal(
    "NotEnoughReplicasAfterAppendError",
    20,
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    RetriableError,
    BrokerResponseError,
)
InvalidRequiredAcksError = _refusal("InvalidRequiredAcksError", 21, "INVALID_REQUIRED_ACKS")
IllegalGenerationError = _refusal("IllegalGenerationError", 22, "ILLEGAL_GENERATION")
InconsistentGroupProtocolError = _refusal(
    "InconsistentGroupProtocolError", 23, "INCONSISTENT_GROUP_PROTOCOL"
)
InvalidGroupIdError = _refusal("InvalidGroupIdError", 24, "INVALID_GROUP_ID")
UnknownMemberIdError = _refusal("UnknownMemberIdError", 25, "UNKNOWN_MEMBER_ID")
InvalidSessionTimeoutError = _refusal("InvalidSessionTimeoutError", 26, "INVALID_SESSION_TIMEOUT")
RebalanceInProgressError = _refusal("RebalanceInProgressError", 27, "REBALANCE_IN_PROGRESS")
InvalidCommitOffsetSizeError = _refusal(
    "InvalidCommitOffsetSizeError", 28, "INVALID_COMMIT_OFFSET_SIZE"
)
TopicAuthorizationFailedError = _refusal(
    "TopicAuthorizationFailedError", 29, "TOPIC_AUTHORIZATION_FAILED", AuthorizationError
)
GroupAuthorizationFailedError = _refusal(
    "GroupAuthorizationFailedError", 30, "GROUP_AUTHORIZATION_FAILED", AuthorizationError
)
ClusterAuthorizationFailedError = _refusal(
    "ClusterAuthorizationFailedError", 31, "CLUSTER_AUTHORIZATION_FAILED", AuthorizationError
)
InvalidTimestampError = _refusal("InvalidTimestampError", 32, "INVALID_TIMESTAMP")
UnsupportedSaslMechanismError = _refusal(
    "UnsupportedSaslMechanismError", 33, "UNSUPPORTED_SASL_MECHANISM"
)
IllegalSaslStateError = _refusal("IllegalSaslStateError", 34, "ILLEGAL_SASL_STATE")
UnsupportedVersionError = _refusal("UnsupportedVersionError", 35, "UNSUPPORTED_VERSION")
TopicAlreadyExistsError = _refusal("TopicAlreadyExistsError", 36, "TOPIC_ALREADY_EXISTS")
InvalidPartitionsError = _refusal("InvalidPartitionsError", 37, "INVALID_PARTITIONS")
InvalidReplicationFactorError = _refusal(
    "InvalidReplicationFactorError", 38, "INVALID_REPLICATION_FACTOR"
)
InvalidReplicationAssignmentError = _refusal(
    "InvalidReplicationAssignmentError", 39, "INVALID_REPLICATION_ASSIGNMENT"
)
InvalidConfigurationError = _refusal("InvalidConfigurationError", 40, "INVALID_CONFIG")
NotControllerError = _refusal(
    "NotControllerError", 41, "NOT_CONTROLLER", RetriableError, BrokerResponseError
)
InvalidRequestError = _refusal("InvalidRequestError", 42, "INVALID_REQUEST")
UnsupportedForMessageFormatError = _refusal(
    "UnsupportedForMessageFormatError", 43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"
)
PolicyViolationError = _refusal("PolicyViolationError", 44, "POLICY_VIOLATION")
OutOfOrderSequenceNumberError = _refusal(
    "OutOfOrderSequenceNumberError", 45, "OUT_OF_ORDER_SEQUENCE_NUMBER"
)
DuplicateSequenceNumberError = _refusal(
    "DuplicateSequenceNumberError", 46, "DUPLICATE_SEQUENCE_NUMBER"
)
InvalidProducerEpochError = _refusal("InvalidProducerEpochError", 47, "INVALID_PRODUCER_EPOCH")
InvalidTxnStateError = _refusal("InvalidTxnStateError", 48, "INVALID_TXN_STATE")
InvalidProducerIdMappingError = _refusal(
    "InvalidProducerIdMappingError", 49, "INVALID_PRODUCER_ID_MAPPING"
)
InvalidTransactionTimeoutError = _refusal(
    "InvalidTransactionTimeoutError", 50, "INVALID_TRANSACTION_TIMEOUT"
)
ConcurrentTransactionsError = _refusal(
    "ConcurrentTransactionsError",
    51,
    "CONCURRENT_TRANSACTIONS",
    RetriableError,
    BrokerResponseError,
)
TransactionCoordinatorFencedError = _refusal(
    "TransactionCoordinatorFencedError", 52, "TRANSACTION_COORDINATOR_FENCED"
)
TransactionalIdAuthorizationFailedError = _refusal(
    "TransactionalIdAuthorizationFailedError",
    53,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    AuthorizationError,
)
SecurityDisabledError = _refusal("SecurityDisabledError", 54, "SECURITY_DISABLED")
OperationNotAttemptedError = _refusal("OperationNotAttemptedError", 55, "OPERATION_NOT_ATTEMPTED")
KafkaStorageError = _refusal(
    "KafkaStorageError", 56, "KAFKA_STORAGE_ERROR", InvalidMetadataError, BrokerResponseError
)
LogDirNotFoundError = _refusal("LogDirNotFoundError", 57, "LOG_DIR_NOT_FOUND")
SaslAuthenticationFailedError = _refusal(
    "SaslAuthenticationFailedError", 58, "SASL_AUTHENTICATION_FAILED"
)
UnknownProducerIdError = _refusal("UnknownProducerIdError", 59, "UNKNOWN_PRODUCER_ID")
ReassignmentInProgressError = _refusal(
    "ReassignmentInProgressError", 60, "REASSIGNMENT_IN_PROGRESS"
)
DelegationTokenAuthDisabledError = _refusal(
    "DelegationTokenAuthDisabledError", 61, "DELEGATION_TOKEN_AUTH_DISABLED"
)
DelegationTokenNotFoundError = _refusal(
    "DelegationTokenNotFoundError", 62, "DELEGATION_TOKEN_NOT_FOUND"
)
DelegationTokenOwnerMismatchError = _refusal(
    "DelegationTokenOwnerMismatchError", 63, "DELEGATION_TOKEN_OWNER_MISMATCH"
)
DelegationTokenRequestNotAllowedError = _refusal(
    "DelegationTokenRequestNotAllowedError", 64, "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"
)
DelegationTokenAuthorizationFailedError = _refusal(
    "DelegationTokenAuthorizationFailedError",
    65,
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    AuthorizationError,
)
DelegationTokenExpiredError = _refusal(
    "DelegationTokenExpiredError", 66, "DELEGATION_TOKEN_EXPIRED"
)
InvalidPrincipalTypeError = _refusal("InvalidPrincipalTypeError", 67, "INVALID_PRINCIPAL_TYPE")
NonEmptyGroupError = _refusal("NonEmptyGroupError", 68, "NON_EMPTY_GROUP")
GroupIdNotFoundError = _refusal("GroupIdNotFoundError", 69, "GROUP_ID_NOT_FOUND")
FetchSessionIdNotFoundError = _refusal(
    "FetchSessionIdNotFoundError",
    70,
    "FETCH_SESSION_ID_NOT_FOUND",
    RetriableError,
    BrokerResponseError,
)
InvalidFetchSessionEpochError = _refusal(
    "InvalidFetchSessionEpochError",
    71,
    "INVALID_FETCH_SESSION_EPOCH",
    RetriableError,
    BrokerResponseError,
)
ListenerNotFoundError = _refusal(
    "ListenerNotFoundError", 72, "LISTENER_NOT_FOUND", InvalidMetadataError, BrokerResponseError
)
TopicDeletionDisabledError = _refusal("TopicDeletionDisabledError", 73, "TOPIC_DELETION_DISABLED")
FencedLeaderEpochError = _refusal(
    "FencedLeaderEpochError", 74, "FENCED_LEADER_EPOCH", InvalidMetadataError, BrokerResponseError
)
UnknownLeaderEpochError = _refusal(
    "UnknownLeaderEpochError", 75, "UNKNOWN_LEADER_EPOCH", InvalidMetadataError, BrokerResponseError
)
UnsupportedCompressionTypeError = _refusal(
    "UnsupportedCompressionTypeError", 76, "UNSUPPORTED_COMPRESSION_TYPE"
)
StaleBrokerEpochError = _refusal("StaleBrokerEpochError", 77, "STALE_BROKER_EPOCH")
OffsetNotAvailableError = _refusal(
    "OffsetNotAvailableError", 78, "OFFSET_NOT_AVAILABLE", RetriableError, BrokerResponseError
)
MemberIdRequiredError = _refusal("MemberIdRequiredError", 79, "MEMBER_ID_REQUIRED")
PreferredLeaderNotAvailableError = _refusal(
    "PreferredLeaderNotAvailableError",
    80,
    "PREFERRED_LEADER_NOT_AVAILABLE",
    InvalidMetadataError,
    BrokerResponseError,
)
GroupMaxSizeReachedError = _refusal("GroupMaxSizeReachedError", 81, "GROUP_MAX_SIZE_REACHED")
FencedInstanceIdError = _refusal("FencedInstanceIdError", 82, "FENCED_INSTANCE_ID")
EligibleLeadersNotAvailableError = _refusal(
    "EligibleLeadersNotAvailableError",
    83,
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    InvalidMetadataError,
    BrokerResponseError,
)
ElectionNotNeededError = _refusal(
    "ElectionNotNeededError", 84, "ELECTION_NOT_NEEDED", InvalidMetadataError, BrokerResponseError
)
NoReassignmentInProgressError = _refusal(
    "NoReassignmentInProgressError", 85, "NO_REASSIGNMENT_IN_PROGRESS"
)
GroupSubscribedToTopicError = _refusal(
    "GroupSubscribedToTopicError", 86, "GROUP_SUBSCRIBED_TO_TOPIC"
)
InvalidRecordError = _refusal("InvalidRecordError", 87, "INVALID_RECORD")
UnstableOffsetCommitError = _refusal(
    "UnstableOffsetCommitError", 88, "UNSTABLE_OFFSET_COMMIT", RetriableError, BrokerResponseError
)
ThrottlingQuotaExceededError = _refusal(
    "ThrottlingQuotaExceededError",
    89,
    "THROTTLING_QUOTA_EXCEEDED",
    RetriableError,
    BrokerResponseError,
)
ProducerFencedError = _refusal("ProducerFencedError", 90, "PRODUCER_FENCED")
ResourceNotFoundError = _refusal("ResourceNotFoundError", 91, "RESOURCE_NOT_FOUND")
DuplicateResourceError = _refusal("DuplicateResourceError", 92, "DUPLICATE_RESOURCE")
UnacceptableCredentialError = _refusal("UnacceptableCredentialError", 93, "UNACCEPTABLE_CREDENTIAL")
InconsistentVoterSetError = _refusal("InconsistentVoterSetError", 94, "INCONSISTENT_VOTER_SET")
InvalidUpdateVersionError = _refusal("InvalidUpdateVersionError", 95, "INVALID_UPDATE_VERSION")
FeatureUpdateFailedError = _refusal("FeatureUpdateFailedError", 96, "FEATURE_UPDATE_FAILED")
PrincipalDeserializationFailureError = _refusal(
    "PrincipalDeserializationFailureError", 97, "PRINCIPAL_DESERIALIZATION_FAILURE"
)
SnapshotNotFoundError = _refusal("SnapshotNotFoundError", 98, "SNAPSHOT_NOT_FOUND")
PositionOutOfRangeError = _refusal("PositionOutOfRangeError", 99, "POSITION_OUT_OF_RANGE")
UnknownTopicIdError = _refusal(
    "UnknownTopicIdError", 100, "UNKNOWN_TOPIC_ID", InvalidMetadataError, BrokerResponseError
)
DuplicateBrokerRegistrationError = _refusal(
    "DuplicateBrokerRegistrationError", 101, "DUPLICATE_BROKER_REGISTRATION"
)
BrokerIdNotRegisteredError = _refusal("BrokerIdNotRegisteredError", 102, "BROKER_ID_NOT_REGISTERED")
InconsistentTopicIdError = _refusal(
    "InconsistentTopicIdError",
    103,
    "INCONSISTENT_TOPIC_ID",
    InvalidMetadataError,
    BrokerResponseError,
)
InconsistentClusterIdError = _refusal("InconsistentClusterIdError", 104, "INCONSISTENT_CLUSTER_ID")
TransactionalIdNotFoundError = _refusal(
    "TransactionalIdNotFoundError", 105, "TRANSACTIONAL_ID_NOT_FOUND"
)
FetchSessionTopicIdError = _refusal(
    "FetchSessionTopicIdError",
    106,
    "FETCH_SESSION_TOPIC_ID_ERROR",
    RetriableError,
    BrokerResponseError,
)
IneligibleReplicaError = _refusal("IneligibleReplicaError", 107, "INELIGIBLE_REPLICA")
NewLeaderElectedError = _refusal("NewLeaderElectedError", 108, "NEW_LEADER_ELECTED")
OffsetMovedToTieredStorageError = _refusal(
    "OffsetMovedToTieredStorageError", 109, "OFFSET_MOVED_TO_TIERED_STORAGE"
)
FencedMemberEpochError = _refusal("FencedMemberEpochError", 110, "FENCED_MEMBER_EPOCH")
UnreleasedInstanceIdError = _refusal("UnreleasedInstanceIdError", 111, "UNRELEASED_INSTANCE_ID")
UnsupportedAssignorError = _refusal("UnsupportedAssignorError", 112, "UNSUPPORTED_ASSIGNOR")
StaleMemberEpochError = _refusal("StaleMemberEpochError", 113, "STALE_MEMBER_EPOCH")
MismatchedEndpointTypeError = _refusal(
    "MismatchedEndpointTypeError", 114, "MISMATCHED_ENDPOINT_TYPE"
)
UnsupportedEndpointTypeError = _refusal(
    "UnsupportedEndpointTypeError", 115, "UNSUPPORTED_ENDPOINT_TYPE"
)
UnknownControllerIdError = _refusal("UnknownControllerIdError", 116, "UNKNOWN_CONTROLLER_ID")
UnknownSubscriptionIdError = _refusal("UnknownSubscriptionIdError", 117, "UNKNOWN_SUBSCRIPTION_ID")
TelemetryTooLargeError = _refusal("TelemetryTooLargeError", 118, "TELEMETRY_TOO_LARGE")
InvalidRegistrationError = _refusal("InvalidRegistrationError", 119, "INVALID_REGISTRATION")
TransactionAbortableError = _refusal("TransactionAbortableError", 120, "TRANSACTION_ABORTABLE")
InvalidRecordStateError = _refusal("InvalidRecordStateError", 121, "INVALID_RECORD_STATE")
ShareSessionNotFoundError = _refusal(
    "ShareSessionNotFoundError", 122, "SHARE_SESSION_NOT_FOUND", RetriableError, BrokerResponseError
)
InvalidShareSessionEpochError = _refusal(
    "InvalidShareSessionEpochError",
    123,
    "INVALID_SHARE_SESSION_EPOCH",
    RetriableError,
    BrokerResponseError,
)
FencedStateEpochError = _refusal("FencedStateEpochError", 124, "FENCED_STATE_EPOCH")
InvalidVoterKeyError = _refusal("InvalidVoterKeyError", 125, "INVALID_VOTER_KEY")
DuplicateVoterError = _refusal("DuplicateVoterError", 126, "DUPLICATE_VOTER")
VoterNotFoundError = _refusal("VoterNotFoundError", 127, "VOTER_NOT_FOUND")
InvalidRegularExpressionError = _refusal(
    "InvalidRegularExpressionError", 128, "INVALID_REGULAR_EXPRESSION"
)
RebootstrapRequiredError = _refusal("RebootstrapRequiredError", 129, "REBOOTSTRAP_REQUIRED")
StreamsInvalidTopologyError = _refusal(
    "StreamsInvalidTopologyError", 130, "STREAMS_INVALID_TOPOLOGY"
)
StreamsInvalidTopologyEpochError = _refusal(
    "StreamsInvalidTopologyEpochError", 131, "STREAMS_INVALID_TOPOLOGY_EPOCH"
)
StreamsTopologyFencedError = _refusal("StreamsTopologyFencedError", 132, "STREAMS_TOPOLOGY_FENCED")
ShareSessionLimitReachedError = _refusal(
    "ShareSessionLimitReachedError",
    133,
    "SHARE_SESSION_LIMIT_REACHED",
    RetriableError,
    BrokerResponseError,
)

CorruptRecordException = CorruptRecordError
kafka_errors = BY_CODE


class IncompatibleBrokerVersion(UnsupportedVersionError):  # type: ignore[misc, valid-type]
    """The broker is too old for what was asked of it."""
