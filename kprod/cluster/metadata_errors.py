"""Why metadata is missing, as errors for users, and the topic searches of callers."""

from __future__ import annotations

from collections.abc import Iterable

from kprod.cluster.snapshot import TopicInfo
from kprod.errors import AuthenticationError, BrokerError, KprodError, KprodTimeoutError


class Search:
    """A search for a topic, and for a partition if not None. Guarded by the metadata's lock.

    ``answers`` and ``refusals`` are the counts when the search began; ``seen`` is the number of
    answers at the last check, -1 before the first.
    """

    __slots__ = ("answers", "partition", "refusals", "seen", "topic")

    def __init__(
        self,
        topic: str,
        partition: int | None,
        answers: int,
        refusals: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.answers = answers
        self.refusals = refusals
        self.seen = -1


MOST_TEXTS = 5
MOST_KEPT = 50

_MEANINGS = {
    3: "it does not exist; a request creates it only if allow_auto_create_topics here and"
    " auto.create.topics.enable at the brokers are on",
    5: "it has no leader yet",
    17: "the brokers do not allow this name",
    29: "this client may not describe or create it",
}


class MetadataErrors:
    """The latest failure of each broker, and the latest refusal of each topic. Not thread-safe."""

    def __init__(self) -> None:
        self._brokers: dict[str, KprodError] = {}  # the latest failure comes last
        self._failed_at: dict[str, int] = {}  # the number of each broker's latest failure
        self.failures = 0  # of all brokers so far
        self._request: KprodError | None = None
        self.topics: dict[str, BrokerError] = {}

    def broker_failed(self, broker: str, error: KprodError) -> None:
        """The connection to ``broker`` failed; ``error`` names it."""
        self._brokers.pop(broker, None)
        self._brokers[broker] = error
        self.failures += 1
        self._failed_at[broker] = self.failures
        if len(self._brokers) > MOST_KEPT:
            oldest = next(iter(self._brokers))
            del self._brokers[oldest], self._failed_at[oldest]

    def failed_since(self, failures: int) -> int:
        """How many brokers have failed since the count was ``failures``."""
        return sum(number > failures for number in self._failed_at.values())

    @property
    def unauthenticated(self) -> AuthenticationError | None:
        """The latest AuthenticationError of a broker."""
        failures = reversed(self._brokers.values())
        return next((error for error in failures if isinstance(error, AuthenticationError)), None)

    def request_failed(self, error: KprodError) -> None:
        """A metadata request failed."""
        self._request = error

    def answered(self, codes: Iterable[tuple[str, int]]) -> None:
        """A broker answered with these error codes for topics."""
        self._brokers.clear()
        self._failed_at.clear()
        self._request = None
        self.topics = {name: _explained(name, code) for name, code in codes if name and code}

    def cause(self, topic: str) -> KprodError | None:
        """The most specific error that explains why ``topic`` is not updated."""
        latest = next(reversed(self._brokers.values()), self._request)
        return self.topics.get(topic) or latest

    def why(self, topic: str) -> str:
        """Why there is no metadata of ``topic``, in the words of brokers and connections."""
        if topic in self.topics:
            return f"the cluster answers {self.topics[topic]}"
        request = [] if self._request is None else [str(self._request)]
        texts = list(dict.fromkeys([*map(str, reversed(self._brokers.values())), *request]))
        more = [f"and {len(texts) - MOST_TEXTS} more"] if len(texts) > MOST_TEXTS else []
        return "; ".join(texts[:MOST_TEXTS] + more) or "no broker has answered yet"

    def not_found(
        self, search: Search, found: TopicInfo | None, seconds: float
    ) -> KprodTimeoutError:
        """The error of a search that timed out.

        ``found`` is the topic, if only the partition is missing; otherwise None.
        """
        what, why = f"topic {search.topic!r}", self.why(search.topic)
        if found is not None and search.partition is not None:
            what = f"partition {search.partition} of {what}"
            why = f"the topic has {len(found)} partitions (0 to {len(found) - 1})"
        error = KprodTimeoutError(f"no metadata for {what} within {seconds:.3g} s: {why}")
        error.__cause__ = self.cause(search.topic)
        return error

    def no_cluster(self, seconds: float) -> KprodTimeoutError:
        """The error of a wait for the cluster that timed out."""
        why = self.why("")
        error = KprodTimeoutError(f"no broker could be asked within {seconds:.3g} s: {why}")
        error.__cause__ = self.cause("")
        return error


def _explained(name: str, code: int) -> BrokerError:
    meaning = _MEANINGS.get(code)
    return BrokerError(code, f"topic {name!r}" + (f": {meaning}" if meaning else ""))
