"""Sends one request at a time to the brokers of a cluster, connected like a producer."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Mapping
from math import inf
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from kprod.admin.leader_wait import ALL_LEADERS, BegunWait, LeaderWait, without_leader
from kprod.clock import SystemClock, monotonic
from kprod.config import ProducerConfig
from kprod.config.reading import option_name
from kprod.errors import (
    BrokerError,
    ConnectionLost,
    ErrorCode,
    KprodError,
    KprodTimeoutError,
    PartitionError,
    UnsupportedVersionError,
)
from kprod.metrics import ProducerMetrics
from kprod.security.composition import open_network
from kprod.sender.assembly import broker_settings
from kprod.sender.broker import Broker as Connection
from kprod.sender.connection import ControlRequest
from kprod.sender.connection_log import ConnectionLog
from kprod.sender.network import Network
from kprod.types import Broker
from kprod.wire import admin
from kprod.wire.admin import Question
from kprod.wire.control import MetadataReply, PartitionReplies, PartitionReply, TopicReply
from kprod.wire.versions import ApiKey

T = TypeVar("T")
_CLIENT_ID: Final = "kprod-admin"
NO_OPTIONS: Final[Mapping[str, Any]] = MappingProxyType({})


class PartitionPlace(NamedTuple):
    """The ids of the brokers of a partition. ``leader`` is -1 while there is no leader."""

    number: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


class TopicDescription(NamedTuple):
    """A topic: its ``partitions`` in order, and the ``options`` set for it, by Kafka's names."""

    name: str
    internal: bool
    partitions: tuple[PartitionPlace, ...]
    options: Mapping[str, str]


class _QuietLog(ConnectionLog):
    """Logs connection failures at DEBUG only, because the caller gets them as exceptions."""

    def seldom(
        self, subject: Hashable, text: str, now: float, what: str = "", **options: int
    ) -> bool:
        """See ``ConnectionLog.seldom``."""
        if what != "failures":
            return super().seldom(subject, text, now, what, **options)
        self.debug("%s", text)
        return False


class _Answer(NamedTuple, Generic[T]):
    value: T
    throttle_ms: int


class _Asked(Generic[T]):
    """A request that was sent, and its answer or error."""

    def __init__(self, question: Question[T]) -> None:
        self._question = question
        self.answer: T | None = None
        self.error: KprodError | None = None
        self.over = False

    def decode(self, version: int, body: memoryview) -> _Answer[T]:
        return _Answer(*self._question.decode(version, body))

    def answered(self, answer: _Answer[T], _now: float) -> None:
        self.answer, self.over = answer.value, True

    def failed(self, error: KprodError, now: float, *, sent: bool) -> None:
        self.error, self.over = error, True


def connect(
    bootstrap_servers: str | None, timeout: float, options: Mapping[str, Any]
) -> ClusterClient:
    """Make a client with a producer's options for ``timeout`` seconds. Raises ConfigError.

    ``bootstrap_servers`` replaces that of the options, unless it is None.
    """
    given = dict(options)
    if bootstrap_servers is not None:
        given = {key: given[key] for key in given if option_name(key) != "bootstrap_servers"}
        given["bootstrap_servers"] = bootstrap_servers
    if "client_id" not in map(option_name, given):
        given["client_id"] = _CLIENT_ID
    return ClusterClient(ProducerConfig.from_options(given), monotonic() + timeout)


class ClusterClient:
    """Sends requests to the brokers of a cluster, and connects to each broker on first use.

    Uses the connection options of a producer. ``deadline`` is a time of ``time.monotonic``. Every
    method that sends raises ``KprodTimeoutError`` at the deadline; ``ConnectionLost``,
    ``AuthenticationError`` or ``ProtocolError`` if a connection fails; ``UnsupportedVersionError``
    if a broker is too old; and ``BrokerError`` if a broker returns an error. For one thread only.
    """

    def __init__(self, config: ProducerConfig, deadline: float = inf) -> None:
        self._deadline = deadline
        self._bootstrap = [Broker(-n, *at) for n, at in enumerate(config.bootstrap_servers, 1)]
        self._brokers: Mapping[int, Broker] = {}
        self._failures: dict[str, KprodError] = {}  # by broker, since the request was made
        rng = random.Random()
        self._network = Network(
            open_network(config),
            config.bootstrap_servers,
            broker_settings(config, rng, needed=(ApiKey.METADATA,)),
            ProducerMetrics(),
            SystemClock(),
            self._failures.__setitem__,
            rng,
            log=_QuietLog(config.client_id),
        )

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._network.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, question: Question[T], node: int | None = None) -> T:
        """The answer of the broker ``node``, or of any broker."""
        asked, sent = _Asked(question), False
        self._move(0.0)  # first: since the last request, a broker may have closed its connection
        self._failures.clear()
        while not asked.over:
            now = monotonic()
            target = None if sent else self._usable(node, now)
            if target is not None:
                request = ControlRequest(
                    question.api, question.encode, asked.decode, asked.answered, asked.failed
                )
                sent = True
                target.send(request, now)
                continue
            if not sent:
                self._check_reachable(node)
            if now >= self._deadline:
                raise self._too_late(question.api, node)
            until = min(self._deadline, self._network.deadlines.first)
            self._move(max(0.0, until - now))
        if isinstance(asked.error, UnsupportedVersionError):  # without the advice to retry
            raise UnsupportedVersionError(str(asked.error))
        if asked.error is not None:
            raise asked.error
        return asked.answer  # type: ignore[return-value]  # the answer, since there is no error

    def _move(self, longest: float) -> None:
        """Wait at most ``longest`` seconds for the network, and do what is due."""
        self._network.poll(longest)
        self._network.deadlines.fire(monotonic())

    def _usable(self, node: int | None, now: float) -> Connection | None:
        network = self._network
        if node is None:
            return network.any_usable(now)
        broker = network.broker(node)
        return broker if broker is not None and network.ready(broker, now) else None

    def _check_reachable(self, node: int | None) -> None:
        """Raise the errors of the brokers if all have failed, or if one has failed permanently.

        Of the bootstrap servers, all are tried before the first answer.
        """
        if node is None:
            places = [*self._bootstrap, *self._brokers.values()]
        elif node in self._brokers:
            places = [self._brokers[node]]
        else:
            raise ConnectionLost(f"broker {node} is not among those the cluster names")
        failures = {str(place): self._failures.get(str(place)) for place in places}
        reasons = [error for error in failures.values() if error is not None]
        have_all_failed = len(reasons) == len(failures)
        for error in reasons:
            if not error.retriable and (have_all_failed or self._brokers):
                raise error
        if have_all_failed:
            raise reasons[0] if len(reasons) == 1 else ConnectionLost("; ".join(map(str, reasons)))

    def _too_late(self, api: ApiKey, node: int | None) -> KprodTimeoutError:
        places = self._bootstrap if node is None else [self._brokers[node]]
        names = ", ".join(f"{place.host}:{place.port}" for place in places)
        causes = "".join(f"; {error}" for error in self._failures.values())
        return KprodTimeoutError(f"no answer to {api.name} from {names} in time{causes}")

    def retried(
        self,
        call: Callable[[], T],
        wait: LeaderWait = ALL_LEADERS,
        again: tuple[type[KprodError], ...] = (BrokerError,),
    ) -> T:
        """Return the result of ``call``, which is repeated after retriable errors of ``again``.

        Raises KprodTimeoutError with the last error at the end of the wait.
        """
        waiting, refusal = BegunWait(wait, self._deadline), None
        while True:
            try:
                return call()
            except KprodTimeoutError:
                if refusal is None:
                    raise
                raise refusal from refusal.__cause__
            except again as error:
                if not error.retriable:
                    raise
                refusal = KprodTimeoutError(str(error))
                refusal.__cause__ = error
                waiting.pause(refusal)

    def metadata(self, *topics: str, every: bool = False) -> MetadataReply:
        """Metadata of the brokers, and of these topics, or of all topics if ``every`` is set."""
        reply = self.ask(admin.metadata(None if every else topics))
        self._brokers = {broker.node_id: broker for broker in reply.brokers}
        self._network.adopt(self._brokers)
        return reply

    def leaders(self, topic: str, wait: LeaderWait = ALL_LEADERS) -> dict[int, int]:
        """The id of the leader of each partition, once the topic exists and has leaders.

        Raises KprodTimeoutError if leaders are missing at the end of the wait, and PartitionError
        if the topic does not have the partition of ``wait``.
        """
        waiting = BegunWait(wait, self._deadline)
        while True:
            leaders, missing = self._present_leaders(topic, wait.partition)
            if missing is None:
                return leaders
            waiting.pause(missing)

    def _present_leaders(
        self, topic: str, partition: int | None
    ) -> tuple[dict[int, int], KprodError | None]:
        """The current leaders, and an error if some are missing."""
        found = _only_topic(self.metadata(topic), topic)
        if found.error_code:
            error = BrokerError(found.error_code, f"topic {topic!r}")
            if not error.retriable:
                raise error
            return {}, error
        parts = {part.partition: part for part in found.partitions}
        if partition is not None:
            if partition not in parts:
                raise PartitionError(
                    f"topic {topic!r} has partitions 0 to {len(parts) - 1}, no {partition}"
                )
            parts = {partition: parts[partition]}
        leaders = {number: part.leader_id for number, part in sorted(parts.items())}
        lost = [number for number, leader in leaders.items() if leader < 0]
        if lost or not leaders:
            return leaders, without_leader(topic, [parts[number] for number in lost])
        return leaders, None

    def coordinator(self, group: str) -> int:
        """The id of the broker that is the coordinator of ``group``."""
        self.metadata()
        found = self.ask(admin.group_coordinator(group))
        if found.error_code:
            raise BrokerError(found.error_code, f"the coordinator of group {group!r}")
        return found.node_id

    def brokers(self) -> list[int]:
        """The ids of all brokers."""
        self.metadata()
        return sorted(self._brokers)

    def topics(self) -> list[TopicDescription]:
        """Every topic that the client may see, sorted by name, without options."""
        found = self.metadata(every=True).topics
        usable = (_described(topic, {}) for topic in found if not topic.error_code)
        return sorted(usable, key=lambda topic: topic.name)

    def topic(self, name: str) -> TopicDescription:
        """One topic, with its options."""
        found = _only_topic(self.metadata(name), name)
        if found.error_code:
            raise BrokerError(found.error_code, f"topic {name!r}")
        refusal, options = self.ask(admin.topic_options(name))
        _check(refusal, name)
        return _described(found, options)

    def create_topic(
        self, name: str, partitions: int, replicas: int, options: Mapping[str, str]
    ) -> None:
        """Create a topic. -1 means the brokers' default."""
        controller = self._controller()
        question = admin.create_topic(name, partitions, replicas, options, self._left_ms())
        _check(self.ask(question, controller), name)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        controller = self._controller()
        _check(self.ask(admin.delete_topic(name, self._left_ms()), controller), name)

    def _controller(self) -> int:
        """The id of the broker that is the controller, once one is elected."""

        def find() -> int:
            found = self.metadata().controller_id
            if found < 0:
                raise BrokerError(ErrorCode.NOT_CONTROLLER, "the cluster is electing a controller")
            return found

        return self.retried(find)

    def _left_ms(self) -> int:
        return max(int(min(self._deadline - monotonic(), 3_600) * 1000), 1)


def _only_topic(reply: MetadataReply, name: str) -> TopicReply:
    """The topic in an answer; if the answer does not contain it, a topic with an error code."""
    unknown = TopicReply(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, None, PartitionReplies())
    return next((topic for topic in reply.topics if topic.name == name), unknown)


def _check(refusal: admin.Refusal, topic: str) -> None:
    if refusal.error_code:
        raise BrokerError(refusal.error_code, refusal.message or f"topic {topic!r}")


def _described(topic: TopicReply, options: Mapping[str, str]) -> TopicDescription:
    places = sorted(map(_place, topic.partitions))
    return TopicDescription(topic.name or "", topic.internal, tuple(places), options)


def _place(part: PartitionReply) -> PartitionPlace:
    return PartitionPlace(part.partition, part.leader_id, tuple(part.replicas), tuple(part.in_sync))
