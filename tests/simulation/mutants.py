"""Bugs planted on purpose: the proof that the simulation would notice the real ones.

A mutant replaces one public name in one module of the producer by a broken version of it, for as
long as it is planted. Most of them are bugs that other clients have shipped.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.simulation import mutants_of_answers as answers
from tests.simulation import mutants_of_growth as growth
from tests.simulation import mutants_of_order as order
from tests.simulation import mutants_of_outcomes as outcomes
from tests.simulation import mutants_of_pace as pace


@dataclass(frozen=True, slots=True)
class Mutant:
    """``swaps``: a name in a module, and what makes the broken version from the real one.

    ``caught_by`` is a seed that notices it.
    """

    name: str
    caught_by: int
    swaps: tuple[tuple[str, Callable[[Any], Any]], ...]

    @contextmanager
    def planted(self) -> Iterator[None]:
        before: list[tuple[Any, str, Any]] = []
        try:
            for path, make in self.swaps:
                module_name, _, name = path.rpartition(".")
                module = importlib.import_module(module_name)
                real = getattr(module, name)
                before.append((module, name, real))
                setattr(module, name, make(real))
            yield
        finally:
            for module, name, real in reversed(before):
                setattr(module, name, real)


PARTITION = "kprod.sender.partitions.Partition"
PARTITIONS = "kprod.sender.assembly.PartitionSet"
OUTCOMES = "kprod.sender.assembly.Outcomes"
JUDGE = "kprod.sender.outcomes.judge"
EXCHANGE = "kprod.sender.produce.ProduceExchange"
CONNECTION = "kprod.sender.broker.BrokerConnection"
SENDER = "kprod.sender"
SPLIT = "kprod.buffer.accumulator.split"
BATCH = "kprod.buffer.accumulator.ProducerBatch"
PART = "kprod.buffer.split.ProducerBatch"
QUEUE = "kprod.buffer.accumulator.PartitionQueue"
LOOP = "kprod.sender.assembly.Sender"
METADATA = "kprod.sender.assembly.Metadata"
CONTEXT = "kprod.buffer.accumulator.AppendContext"
WINDOW = "kprod.sender.assembly.Window"
ENCODING = "kprod.sender.produce.encode_produce_request"


def _one(name: str, caught_by: int, path: str, make: Callable[[Any], Any]) -> Mutant:
    return Mutant(name, caught_by, ((path, make),))


MUTANTS = (
    # Order and sequences
    Mutant(
        "a maybe batch goes out under a new epoch",
        24,
        ((PARTITION, order.resends_maybe), (JUDGE, order.resequences_maybe)),
    ),
    _one("a new epoch is taken for every partition at once", 92, PARTITIONS, order.bumps_all),
    _one("a retry gets new sequence numbers", 5, PARTITION, order.renumbers),
    _one("many in flight before the first OK", 24, PARTITION, order.skips_proof),
    _one("a retry overtakes older batches", 23, PARTITION, order.overtakes),
    _one("a new epoch goes on with the old numbers", 9, PARTITION, order.keeps_numbers),
    _one("proof outlives the topic it was given for", 106, METADATA, order.trusts_namesakes),
    _one("what a log cut short accepts is proof", 548, PARTITION, order.trusts_cut_logs),
    _one("batches come back in the reverse order", 8, QUEUE, order.reverses),
    _one("batches come back at the end of the queue", 5, QUEUE, order.appends),
    Mutant(
        "sequences are forgotten while a topic is missing",
        28,
        order.forgets_missing_topics("kprod.sender.metadata.decode_metadata_response", PARTITION),
    ),
    _one(
        "a broker's memory is trusted for ever",
        224,
        f"{SENDER}.partition.PROOF_LASTS",
        order.trusts_for_ever,
    ),
    _one("halves of a batch change places", 41, SPLIT, outcomes.halves_reversed),
    # Outcomes
    _one("halves of a batch are beyond doubt", 1597, SPLIT, outcomes.halves_without_doubt),
    _one("what is out of sequence was stored before", 202, JUDGE, outcomes.believes),
    _one("a batch is acknowledged when its time runs out", 12, OUTCOMES, outcomes.acks_on_timeout),
    Mutant(
        "memory is given back while on the wire",
        24,
        (
            (OUTCOMES, outcomes.frees_on_expiry),
            (BATCH, outcomes.frees_once),
            (PART, outcomes.frees_once),
        ),
    ),
    _one("memory is given back twice", 0, OUTCOMES, outcomes.frees_twice),
    _one("expired batches on the wire are forgotten", 12, OUTCOMES, outcomes.forgets_expired),
    _one("doubt is forgotten with the next attempt", 9, OUTCOMES, outcomes.forgets_doubt),
    _one("offsets of retried batches are one too high", 0, OUTCOMES, outcomes.miscounts),
    _one("DUPLICATE is a failure", 43, JUDGE, outcomes.fails_duplicates),
    _one("a passing error is final", 45, JUDGE, outcomes.fails_not_leader),
    _one("a sequence refused for good is tried for ever", 124, JUDGE, outcomes.retries_for_ever),
    _one(
        "callbacks are called twice",
        0,
        "kprod.buffer.accumulator.BatchDelivery",
        outcomes.tells_twice,
    ),
    _one("expired batches vanish", 12, PARTITION, outcomes.loses_expired),
    Mutant(
        "close forgets what is on the wire",
        58,
        ((PARTITIONS, outcomes.withdraws_the_queued), (LOOP, outcomes.disowns_the_queued)),
    ),
    _one("a lost office means not written", 168, EXCHANGE, outcomes.trusts_leaders),
    # Answers
    _one("correlation ids are ignored", 4, CONNECTION, answers.ignores_ids),
    _one("partitions left out of an answer are forgotten", 9, EXCHANGE, answers.swallows),
    _one("an answer is taken for the wrong partition", 9, EXCHANGE, answers.shuffles),
    _one("a cut request was never sent", 9, EXCHANGE, answers.says_not_sent),
    _one("records go to another partition", 1, EXCHANGE, answers.misroutes),
    # Pace
    _one("no back-off before a retry", 21, PARTITION, pace.retries_at_once),
    _one("no back-off before a connection", 12, "kprod.sender.network.Broker", pace.reconnects),
    _one("no back-off between metadata requests", 0, METADATA, pace.asks_at_once),
    _one("throttling is ignored", 4, EXCHANGE, pace.ignores_throttle),
    _one("the limit of requests in flight is ignored", 1, CONNECTION, pace.floods),
    _one("a partition that waits is forgotten", 4, PARTITION, pace.forgets_who_waits),
    # Growth
    _one("a batch grows without end", 1, CONTEXT, growth.outgrows),
    _one("what a batch grew into is not given back", 82, BATCH, growth.keeps_chunks),
    _one("the pieces of a batch change places", 1, ENCODING, growth.swaps_pieces),
    _one("a piece of a batch is sent for all of them", 1, ENCODING, growth.repeats_a_piece),
    _one("records are counted before a batch leaves", 13, PARTITION, growth.counts_early),
    _one("a window stays wide after a loss", 8498, WINDOW, growth.stays_wide),
    _one("a window is wide from the start", 87, WINDOW, growth.starts_wide),
)
