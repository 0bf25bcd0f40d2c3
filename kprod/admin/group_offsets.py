"""The committed offsets of a consumer group, with their metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kprod.admin.cluster_client import NO_OPTIONS, ClusterClient, connect
from kprod.admin.leader_wait import ALL_LEADERS, LeaderWait
from kprod.config.reading import concealed
from kprod.errors import BrokerError, ConnectionLost, ErrorCode
from kprod.types import TopicPartition
from kprod.wire import admin

_DEFAULT_TIMEOUT: Final = 30.0
COORDINATOR_ERRORS: Final = (BrokerError, ConnectionLost)
"""Errors of a group's coordinator that may be over when the group has another one."""
_UNSTABLE: Final = (
    "an open transaction can still change the offsets of group {!r}: commit or abort that one first"
)


class GroupOffset(NamedTuple):
    """A committed offset, and the string that was committed with it."""

    offset: int
    metadata: str


def committed_offsets(
    bootstrap_servers: str | None,
    group: str,
    *,
    timeout: float = _DEFAULT_TIMEOUT,
    stable: bool = True,
    options: Mapping[str, Any] = NO_OPTIONS,
) -> dict[TopicPartition, GroupOffset]:
    """Return the committed offsets of ``group``, by partition.

    With ``stable``, wait until no open transaction can change them. The result is empty if the
    group does not exist. ``timeout`` is in seconds; ``options`` are those of a producer. Raises
    KprodTimeoutError, ConnectionLost, AuthenticationError and BrokerError.
    """
    options = concealed(options)
    with connect(bootstrap_servers, timeout, options) as cluster:
        cluster.metadata()  # a cluster that cannot be reached at all is not waited for
        return fetch_offsets(cluster, group, None, stable=stable)


def fetch_offsets(
    cluster: ClusterClient,
    group: str,
    topics: Mapping[str, Sequence[int]] | None,
    *,
    stable: bool = True,
    wait: LeaderWait = ALL_LEADERS,
) -> dict[TopicPartition, GroupOffset]:
    """A group's offsets for these or all partitions. Raises as the methods of ``ClusterClient``."""

    def fetch() -> dict[TopicPartition, GroupOffset]:
        question = admin.group_offsets(group, topics, stable=stable)
        reply = cluster.ask(question, cluster.coordinator(group))
        for code in (reply.error_code, *(found.error_code for found in reply.offsets)):
            if code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise BrokerError(code, _UNSTABLE.format(group))
            if code:
                raise BrokerError(code, f"the offsets of group {group!r}")
        return {
            TopicPartition(found.topic, found.partition): GroupOffset(
                found.offset, found.metadata.decode(errors="replace")
            )
            for found in reply.offsets
            if found.offset >= 0
        }

    return cluster.retried(fetch, wait, COORDINATOR_ERRORS)
