"""One caller's search for a topic: what it has seen so far, between two looks"""

from __future__ import annotations

from kprod.cluster.snapshot import TopicInfo


class Search:
    """Of a topic, and of a partition if that is not None. Changed under the metadata's lock.

    ``before`` is the topic as it was known when the search began, ``answers`` and ``refusals`` how
    many there had been; ``seen`` is the answers at the last look, -1 before the first.
    """

    __slots__ = ("answers", "before", "partition", "refusals", "seen", "topic")

    def __init__(
        self,
        topic: str,
        partition: int | None,
        before: TopicInfo | None,
        answers: int,
        refusals: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.before = before
        self.answers = answers
        self.refusals = refusals
        self.seen = -1
