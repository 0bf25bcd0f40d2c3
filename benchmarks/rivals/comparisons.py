"""What is compared: the clients, the workloads, and how much of them.

Slow clients send fewer records of the same kind, so that every turn takes about a second: rates and
costs are per record. Each turn is long against what it does once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.rivals.clients import CLIENTS
from benchmarks.rivals.comparison import Comparison
from benchmarks.rivals.turn import Turn

KPROD, KPROD_MANY, KPROD_ARROW = "kprod send", "kprod send_many", "kprod send_arrow"
DROPPED = "kprod send, futures dropped"
CALLBACK, PLAIN = "confluent produce + callback", "confluent produce"
BOUNDED = "confluent produce + callback, bounded"
BATCH = "confluent produce_batch"
KAFKA_PYTHON, AIOKAFKA = "kafka-python send", "aiokafka send"
KPROD_TASK, CONFLUENT_TASK = "kprod.spark in a task", "confluent in a task"
KPROD_TASK_BY_ROW = "kprod.spark in a task, row by row"
KPROD_AVRO, CONFLUENT_AVRO = "kprod send, Avro", "confluent produce + callback, Avro"
KPROD_AVRO_TASK = "kprod.spark in a task, Avro"
CONFLUENT_AVRO_TASK = "confluent in a task, Avro row by row"
CONFLUENT_FACE = "kprod.confluent produce + callback"
AIO_FACE, AIO = "kprod.aio AIOKafkaProducer", "kprod.aio Producer"
AIO_ALL = f"{AIO} send_all"
LOOPBACK, LOOPBACK_IN_TURNS = "raw loopback", "raw loopback, 32 MB in turns"
MEMCPY = "memory copy"

KEYS = 1_000
LARGE_VALUE = 1_000
MANY_PARTITIONS = 10_000
KNOWN_PARTITIONS = 100_000
KEYS_FOR_SOME = 10_536
"""So many keys are expected to reach 10,000 of 100,000 partitions."""
FEW = "6 partitions"
MANY = "10,000 partitions"
MANY_HASTY = "10,000 partitions, linger 5 ms"
SOME = "10,000 of 100,000 partitions"
RIVAL_FEW, RIVAL_MANY = "confluent, 6 partitions", "confluent, 10,000 partitions"
IDLE_MANY, IDLE_SOME = f"kprod, {MANY}", f"kprod, {SOME}"
LEVELS = {"lz4": 1, "zstd": 3}
"""Given to both sides: librdkafka's level 1 and python-lz4's are both the fast mode."""

BUFFER_MEMORY = 32 * 1024 * 1024
MILLION = 1_000_000
LEAST_RECORDS = 2_000
LONE_REPEATS, PARTITIONS_REPEATS = 5, 2
"""How often these are repeated in a round. The turns of one client lie a factor of two apart where
a record waits for an idle core to wake, or for memory that is in no cache."""
WARM_UP_PART = 4
"""This part of a turn's records goes first, and does not count. By then a client has written to all
the memory it will use: a page's first use takes a virtual machine microseconds, once."""


def comparisons(scale: float = 1.0) -> list[Comparison]:
    """All of them; with ``scale`` so many times the records."""
    return [
        _keyed(scale),
        _keyed_large(scale),
        _bulk(scale),
        _lone(scale),
        *(_compressed(codec, level, scale) for codec, level in LEVELS.items()),
        _memory(scale),
        _partitions(scale),
        _idle(scale),
        _spark(scale),
    ]


def _turn(client: str, records: float, scale: float, **settings: Any) -> Turn:
    count = max(LEAST_RECORDS, int(records * scale))
    settings.setdefault("warm_up", count // WARM_UP_PART)
    return Turn(client=client, records=count, **settings)


def _keyed(scale: float) -> Comparison:
    records = {
        KPROD: 4 * MILLION,
        CALLBACK: MILLION,
        PLAIN: MILLION,
        KAFKA_PYTHON: MILLION / 10,
        AIOKAFKA: MILLION / 5,
    }
    sides = {side: _turn(side, count, scale, keys=KEYS) for side, count in records.items()}
    question = "How many keyed records of 100 bytes a second, and at what cost in CPU time?"
    return Comparison("keyed", question, sides)


def _keyed_large(scale: float) -> Comparison:
    records = {KPROD: 3 * MILLION / 2, CALLBACK: MILLION / 2}
    sides = {
        side: _turn(side, count, scale, keys=KEYS, size=LARGE_VALUE)
        for side, count in records.items()
    }
    question = "How many megabytes a second, in keyed records of 1,000 bytes?"
    return Comparison("keyed-1000", question, sides)


def _bulk(scale: float) -> Comparison:
    records = {
        BATCH: MILLION,
        KPROD_MANY: 10 * MILLION,
        KPROD_ARROW: 10 * MILLION,
        LOOPBACK: 10 * MILLION,
        MEMCPY: 10 * MILLION,
    }
    sides = {side: _turn(side, count, scale) for side, count in records.items() if side in CLIENTS}
    sides[LOOPBACK_IN_TURNS] = replace(sides[LOOPBACK], buffer_memory=BUFFER_MEMORY)
    question = "How many records of 100 bytes a second, without keys, many in a call?"
    return Comparison("bulk", question, sides)


def _lone(scale: float) -> Comparison:
    records = {KPROD: 5_000, CALLBACK: 5_000, KAFKA_PYTHON: 2_500, LOOPBACK: 5_000}
    sides = {
        side: _turn(side, count, scale, measure="lone", linger_ms=0, warm_up=500)
        for side, count in records.items()
    }
    question = "How long does one record take that is sent alone and waited for?"
    return Comparison("lone", question, sides, LONE_REPEATS)


def tls_comparisons(scale: float = 1.0) -> list[Comparison]:
    """The keyed ones and the lone record again, by TLS 1.3 with one cipher for all sides."""
    found = []
    for plain in (_keyed(scale), _keyed_large(scale), _lone(scale)):
        sides = {
            side: replace(turn, tls=True)
            for side, turn in plain.sides.items()
            if side in (KPROD, CALLBACK)
        }
        question = plain.question.rstrip("?") + ", by TLS 1.3?"
        found.append(Comparison(f"{plain.name}-tls", question, sides, plain.repeats))
    return found


def busy_comparisons(scale: float = 1.0) -> list[Comparison]:
    """The lone record again, while other processes keep every core busy."""
    lone = _lone(scale)
    sides = {side: replace(lone.sides[side], busy=True) for side in (KPROD, CALLBACK)}
    question = lone.question.rstrip("?") + ", while other programs keep all cores busy?"
    return [Comparison("lone-busy", question, sides, lone.repeats)]


def default_comparisons(scale: float = 1.0) -> list[Comparison]:
    """Those of a record a call, of many in a call and of the lone record, with default options."""
    found = []
    for tuned in (_keyed(scale), _keyed_large(scale), _bulk(scale), _lone(scale)):
        few = tuned.name == "lone"  # most clients let each record linger for milliseconds
        sides = {
            side: replace(turn, defaults=True, records=turn.records // 5 if few else turn.records)
            for side, turn in tuned.sides.items()
            if side not in (PLAIN, LOOPBACK, LOOPBACK_IN_TURNS, MEMCPY)
        }
        question = tuned.question.rstrip("?") + ", with default options?"
        found.append(Comparison(f"{tuned.name}-defaults", question, sides, tuned.repeats))
    return found


def face_comparisons(scale: float = 1.0) -> list[Comparison]:
    """Programs for other clients, and the same programs with one import changed."""
    records = {CONFLUENT_FACE: 2 * MILLION, CALLBACK: MILLION}
    polled = {side: _turn(side, count, scale, keys=KEYS) for side, count in records.items()}
    awaited = {AIO_ALL: 2 * MILLION, AIO: MILLION, AIO_FACE: MILLION, AIOKAFKA: MILLION / 5}
    many = {side: _turn(side, count, scale, keys=KEYS) for side, count in awaited.items()}
    lone = {
        side: _turn(side, 2_500, scale, measure="lone", linger_ms=0, warm_up=500)
        for side in (AIO, AIO_FACE, AIOKAFKA)
    }
    alone = "How long does one record take that is sent and awaited, in asyncio?"
    return [
        Comparison("confluent-face", "Keyed records of 100 bytes, with polled callbacks?", polled),
        Comparison("aiokafka-face", "Keyed records of 100 bytes, each awaited, in asyncio?", many),
        Comparison("aiokafka-lone-face", alone, lone),
    ]


def avro_comparisons(scale: float = 1.0) -> list[Comparison]:
    """Records of ten fields in Avro, with a registry, by ``send`` and in a Spark task."""
    sent = {KPROD_AVRO: MILLION, CONFLUENT_AVRO: MILLION}
    in_tasks = {KPROD_AVRO_TASK: MILLION, CONFLUENT_AVRO_TASK: MILLION / 2}
    many = {side: _turn(side, count, scale, keys=KEYS) for side, count in sent.items()}
    written = {
        side: _turn(side, count, scale, keys=KEYS)
        for side, count in in_tasks.items()
        if side in CLIENTS
    }
    return [
        Comparison("avro", "How many keyed Avro records of ten fields a second?", many),
        Comparison("avro-spark", "How many, of the record batches of a Spark task?", written),
    ]


def _compressed(codec: str, level: int, scale: float) -> Comparison:
    records = {KPROD: 600_000, CALLBACK: 300_000}
    sides = {
        side: _turn(side, count, scale, payload="flights", compression=codec, level=level)
        for side, count in records.items()
    }
    question = f"How many JSON records of about 1 KB a second, compressed by {codec} {level}?"
    return Comparison(codec, question, sides)


def _memory(scale: float) -> Comparison:
    """The rival has a queue of the same size; it sends less, for its memory is full soon, too.

    To warm up takes lists, whose memory would count.
    """
    records = {DROPPED: 10 * MILLION, BOUNDED: 2 * MILLION}
    small: dict[str, Any] = {"measure": "memory", "buffer_memory": BUFFER_MEMORY, "warm_up": 1_000}
    sides = {side: _turn(side, count, scale, keys=KEYS, **small) for side, count in records.items()}
    question = "How much memory does the process have at most, for ten million records?"
    return Comparison("memory", question, sides)


def _partitions(scale: float) -> Comparison:
    """Three sides with the same settings: room for a batch everywhere, and time to fill it.

    Each partition gets 600 records, four batches and a part of one: with half of that,
    a third of the batches were those that the end of the turn found half full.

    The third knows ten times as many partitions as it uses. The fourth has the usual linger, which
    sends batches that hold a few records: what that costs is no question of how many partitions are
    known, and judged by no goal. Nor are the rival's sides, which are there to compare with.
    """
    room: dict[str, Any] = {
        "keys": 10 * MANY_PARTITIONS,
        "warm_up": 10 * MANY_PARTITIONS,
        "batch_size": 16_384,
        "buffer_memory": 16 * BUFFER_MEMORY,
    }
    enough = max(scale, 0.5)
    patient = {"linger_ms": 10_000, **room}
    some = {**patient, "partitions": KNOWN_PARTITIONS, "keys": KEYS_FOR_SOME}
    sides = {
        FEW: _turn(DROPPED, 6 * MILLION, enough, **patient),
        MANY: _turn(DROPPED, 6 * MILLION, enough, partitions=MANY_PARTITIONS, **patient),
        SOME: _turn(DROPPED, 6 * MILLION, enough, **some),
        MANY_HASTY: _turn(DROPPED, MILLION / 4, scale, partitions=MANY_PARTITIONS, **room),
        RIVAL_FEW: _turn(BOUNDED, MILLION, scale, **patient),
        RIVAL_MANY: _turn(BOUNDED, MILLION, scale, partitions=MANY_PARTITIONS, **patient),
    }
    question = "What does a keyed record cost with 10,000 partitions in use, and with 6?"
    return Comparison("partitions", question, sides, PARTITIONS_REPEATS)


def _idle(scale: float) -> Comparison:
    """Once each of some 10,000 partitions was sent to, nothing more is sent.

    The rival is not asked to know 100,000 partitions: to send a record to each of 10,000 of them
    takes it more than a minute.
    """
    whole = max(scale, 1)
    once: dict[str, Any] = {"measure": "idle", "warm_up": 1_000}
    many = {**once, "keys": 10 * MANY_PARTITIONS, "partitions": MANY_PARTITIONS}
    some = {**once, "keys": KEYS_FOR_SOME, "partitions": KNOWN_PARTITIONS}
    sides = {
        IDLE_MANY: _turn(KPROD, 10 * MANY_PARTITIONS, whole, **many),
        IDLE_SOME: _turn(KPROD, KEYS_FOR_SOME, whole, **some),
        RIVAL_MANY: _turn(CALLBACK, 10 * MANY_PARTITIONS, whole, **many),
    }
    question = "What does a producer cost that has sent to 10,000 partitions, and now to none?"
    return Comparison("idle", question, sides)


def _spark(scale: float) -> Comparison:
    """No goal judges it: it shows what ``send_arrow`` is to who writes from Spark."""
    records = {KPROD_TASK: 4 * MILLION, KPROD_TASK_BY_ROW: MILLION, CONFLUENT_TASK: MILLION}
    sides = {
        side: _turn(side, count, scale, keys=KEYS)
        for side, count in records.items()
        if side in CLIENTS
    }
    question = "What do the record batches of a Spark task cost, keyed, with values of 100 bytes?"
    return Comparison("spark", question, sides)
