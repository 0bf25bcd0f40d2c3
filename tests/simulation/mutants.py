"""The bugs that are planted, and for each a seed that notices it.

Most of them are bugs that other clients have shipped.
"""

from __future__ import annotations

from typing import Any

from tests.simulation import mutants_of_answers as answers
from tests.simulation import mutants_of_growth as growth
from tests.simulation import mutants_of_order as order
from tests.simulation import mutants_of_outcomes as outcomes
from tests.simulation import mutants_of_pace as pace
from tests.simulation.planted import Bug

PARTITION = "kprod.sender.partitions.Partition"
PARTITIONS = "kprod.sender.assembly.PartitionSet"
EXCHANGE = "kprod.sender.partitions.ProduceExchange"
CONNECTION = "kprod.sender.broker.BrokerConnection"
SENDER = "kprod.sender"
SPLIT = "kprod.buffer.accumulator.split"
BATCH = "kprod.buffer.accumulator.ProducerBatch"
PART = "kprod.buffer.split.ProducerBatch"
QUEUE = "kprod.buffer.accumulator.PartitionQueue"
LOOP = "kprod.sender.assembly.Sender"
METADATA = "kprod.sender.assembly.Metadata"
CONTEXT = "kprod.buffer.accumulator.AppendContext"
WINDOW = "kprod.sender.broker.Window"
ENCODING = "kprod.sender.produce.encode_produce_request"


def _one(name: str, caught_by: int, path: str, broken: Any) -> Bug:
    return Bug(name, caught_by, ((path, broken),))


MUTANTS = (
    # Order and sequences
    Bug(
        "a maybe batch goes out under a new epoch",
        24,
        ((PARTITION, order.ResendsMaybe),),
    ),
    _one("a new epoch is taken for every partition at once", 92, PARTITIONS, order.BumpsAll),
    _one("a retry gets new sequence numbers", 5, PARTITION, order.Renumbers),
    _one("many in flight before the first OK", 24, PARTITION, order.SkipsProof),
    _one("a retry overtakes older batches", 23, PARTITION, order.Overtakes),
    _one("a new epoch goes on with the old numbers", 9, PARTITION, order.KeepsNumbers),
    _one("proof outlives the topic it was given for", 106, METADATA, order.TrustsNamesakes),
    _one("what a log cut short accepts is proof", 548, PARTITION, order.TrustsCutLogs),
    _one("batches come back in the reverse order", 8, QUEUE, order.Reverses),
    _one("batches come back at the end of the queue", 5, QUEUE, order.Appends),
    Bug(
        "sequences are forgotten while a topic is missing",
        28,
        (
            ("kprod.sender.requests.decode_metadata_response", order.watch_for_missing_topics),
            (PARTITION, order.ForgetsMissingTopics),
        ),
    ),
    _one(
        "a broker's memory is trusted for ever",
        224,
        f"{SENDER}.partition.PROOF_LASTS",
        order.TRUSTS_FOR_EVER,
    ),
    _one("halves of a batch change places", 41, SPLIT, outcomes.halves_reversed),
    # Outcomes
    _one("halves of a batch are beyond doubt", 1597, SPLIT, outcomes.halves_without_doubt),
    _one("what is out of sequence was stored before", 202, PARTITION, outcomes.Believes),
    _one("a batch is acknowledged when its time runs out", 12, PARTITION, outcomes.AcksOnTimeout),
    Bug(
        "memory is given back while on the wire",
        24,
        (
            (PARTITION, outcomes.FreesOnExpiry),
            (BATCH, outcomes.FreesOnce),
            (PART, outcomes.FreesOnce),
        ),
    ),
    _one("memory is given back twice", 0, PARTITION, outcomes.FreesTwice),
    _one("expired batches on the wire are forgotten", 12, PARTITION, outcomes.ForgetsExpired),
    _one("doubt is forgotten with the next attempt", 9, PARTITION, outcomes.ForgetsDoubt),
    _one("offsets of retried batches are one too high", 0, PARTITION, outcomes.Miscounts),
    _one("DUPLICATE is a failure", 43, PARTITION, outcomes.FailsDuplicates),
    _one("a passing error is final", 45, PARTITION, outcomes.FailsNotLeader),
    _one("a sequence refused for good is tried for ever", 124, PARTITION, outcomes.RetriesForEver),
    _one(
        "callbacks are called twice",
        0,
        "kprod.buffer.accumulator.BatchDelivery",
        outcomes.TellsTwice,
    ),
    _one("expired batches vanish", 12, PARTITION, outcomes.LosesExpired),
    Bug(
        "close forgets what is on the wire",
        58,
        ((PARTITIONS, outcomes.WithdrawsTheQueued), (LOOP, outcomes.DisownsTheQueued)),
    ),
    _one("a lost office means not written", 168, EXCHANGE, outcomes.TrustsLeaders),
    # Answers
    _one("correlation ids are ignored", 4, CONNECTION, answers.IgnoresIds),
    _one("partitions left out of an answer are forgotten", 9, EXCHANGE, answers.Swallows),
    _one("an answer is taken for the wrong partition", 9, EXCHANGE, answers.Shuffles),
    _one("a cut request was never sent", 9, EXCHANGE, answers.SaysNotSent),
    _one("records go to another partition", 1, EXCHANGE, answers.Misroutes),
    # Pace
    _one("no back-off before a retry", 21, PARTITION, pace.RetriesAtOnce),
    _one("no back-off before a connection", 12, "kprod.sender.network.Broker", pace.Reconnects),
    _one("no back-off between metadata requests", 0, METADATA, pace.AsksAtOnce),
    _one("throttling is ignored", 4, EXCHANGE, pace.IgnoresThrottle),
    _one("the limit of requests in flight is ignored", 1, CONNECTION, pace.Floods),
    _one("a partition that waits is forgotten", 4, PARTITION, pace.ForgetsWhoWaits),
    # Growth
    _one("a batch grows without end", 1, CONTEXT, growth.Outgrows),
    _one("what a batch grew into is not given back", 82, BATCH, growth.KeepsChunks),
    _one("the pieces of a batch change places", 1, ENCODING, growth.swaps_pieces),
    _one("a piece of a batch is sent for all of them", 1, ENCODING, growth.repeats_a_piece),
    _one("records are counted before a batch leaves", 13, PARTITION, growth.CountsEarly),
    _one("a window stays wide after a loss", 8498, WINDOW, growth.StaysWide),
    _one("a window is wide from the start", 87, WINDOW, growth.StartsWide),
)
