"""The table of options: the one place that knows their names, defaults, ranges and meanings."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from kprod.config.addresses import Addresses
from kprod.config.kinds import (
    MAX_INT32,
    MAX_INT64,
    Choice,
    InterceptorPlugins,
    PartitionerPlugin,
    ProtocolText,
    SerializerPlugin,
    TransportPlugin,
    Truth,
    WholeNumber,
)
from kprod.config.option import Option
from kprod.config.security_options import SECURITY_ROWS
from kprod.config.topic_options import OptionsByTopic, TopicName

PROFILES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Batches wait until they are worth a request, and grow as large as one may be.
        "throughput": {
            "linger_ms": 50,
            "batch_size": 131072,
            "batch_max_size": 1048576,
            "buffer_memory": 134217728,
        },
        # No batch waits for more records, and a caller that waits for its record polls first.
        "latency": {"linger_ms": 0, "busy_poll_us": 50},
        # A cluster may be away for as long as it takes to mend it.
        "durable": {
            "acks": "all",
            "enable_idempotence": True,
            "delivery_timeout_ms": 1800000,
            "close_timeout_ms_at_exit": 30000,
            "close_on_sigterm": True,
        },
    }
)
"""By name the options that a profile sets, where they are not set otherwise."""


def described() -> str:
    """What each profile sets, in words of Markdown."""
    return "; ".join(
        f"`{name}`: " + ", ".join(f"`{option}={value!r}`" for option, value in options.items())
        for name, options in PROFILES.items()
    )


_ACKS = Choice(
    {"all": -1, "-1": -1, -1: -1, "0": 0, 0: 0, "1": 1, 1: 1}, "str or int", '"all" (or -1), 0 or 1'
)
_CODECS = Choice(
    {None: None, "none": None, "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"},
    "str or None",
    'None, "gzip", "snappy", "lz4" or "zstd"',
)
_RECOVERIES = Choice(
    {"rebootstrap": "rebootstrap", "none": "none"}, "str", '"rebootstrap" or "none"'
)
_NAMED_PROFILES = 'None, "throughput", "latency" or "durable"'
_SERIALIZER = SerializerPlugin()
_MOST_RECORDS = 2**31 - 2**24
_SOCKET_BUFFER = WholeNumber(1, unit="bytes", instead={None: None, 0: None, -1: None})


def _ms(low: int = 0) -> WholeNumber:
    return WholeNumber(low, unit="milliseconds")


def _bytes(low: int, high: int = MAX_INT32) -> WholeNumber:
    return WholeNumber(low, high, unit="bytes")


_DELIVERY_ROWS = (
    Option(
        "bootstrap_servers",
        "localhost:9092",
        Addresses(),
        "Brokers to ask first; they tell of the others. The port is 9092 unless given.",
        ("metadata.broker.list",),
    ),
    Option(
        "client_id",
        None,
        ProtocolText(),
        "Name shown in the brokers' logs and used for quotas. None makes `kprod-producer-N`.",
    ),
    Option(
        "profile",
        None,
        Choice({None: None, **{name: name for name in PROFILES}}, "str or None", _NAMED_PROFILES),
        "What the producer is for: a set of options that hold where they are not set themselves."
        f" {described()}.",
    ),
    Option(
        "acks",
        "all",
        _ACKS,
        "Replicas that must have stored a batch before it counts as sent: all in sync (`all`), the"
        " leader (1), none (0, offsets are unknown then).",
        ("request.required.acks",),
    ),
    Option(
        "enable_idempotence",
        True,
        Truth(),
        "Retries neither duplicate nor reorder records. Needs `acks=all`, `retries` above 0 and"
        " at most 5 requests in flight. When another value of one is set: an error if idempotence"
        " was asked for, else it is switched off with a warning.",
    ),
    Option(
        "transactional_id",
        None,
        ProtocolText(1),
        "Name under which a producer's transactions are known to the cluster; the same one each"
        " time the same work is taken up again. It makes `init_transactions` and what follows"
        " possible, and everything else impossible outside a transaction. Needs idempotence.",
    ),
    Option(
        "transaction_timeout_ms",
        60000,
        _ms(1),
        "A transaction that is open for longer is aborted by its coordinator. At most the brokers'"
        " `transaction.max.timeout.ms`.",
    ),
    Option(
        "key_serializer",
        None,
        _SERIALIZER,
        "Turns keys into bytes. None and `bytes` accept bytes only; `str` writes UTF-8, `json` JSON"
        " in UTF-8, `int` 8 and `int32` 4 bytes as Kafka's Long and Integer serializers, `float` 8"
        " bytes as its Double serializer. An object's `close()`, if any, is called when the"
        " producer has ended.",
    ),
    Option(
        "value_serializer",
        None,
        _SERIALIZER,
        "Turns values into bytes, with the same choices as `key_serializer`.",
    ),
    Option(
        "partitioner",
        "default",
        PartitionerPlugin(),
        "Chooses the partition of a record that names none. `default`: by murmur2 of the key, as"
        " Kafka's Java client does; `crc32`: as librdkafka's `consistent_random`; `fnv1a`: as"
        " Sarama's hash partitioner. With all three, records without a key stay on one partition"
        " until a batch is full. `round_robin`: one after the other, also for equal keys. An"
        " object's `close()`, if any, is called when the producer has ended.",
        ("partitioner.class",),
    ),
    Option(
        "partitioner_adaptive_partitioning_enable",
        True,
        Truth(),
        "Records without a key go less often to partitions with many batches queued (KIP-794).",
    ),
    Option(
        "partitioner_availability_timeout_ms",
        0,
        _ms(),
        "Records without a key avoid brokers that could not take what was ready for them for longer"
        " than this. 0: they do not.",
    ),
    Option(
        "partitioner_ignore_keys",
        False,
        Truth(),
        "Partition records with a key as those without.",
    ),
    Option(
        "interceptors",
        (),
        InterceptorPlugins(),
        "Objects that see every record, as in Kafka before its partition is chosen, and every"
        " outcome. Their `close()`, if any, is called when the producer has ended.",
        ("interceptor.classes",),
    ),
    Option(
        "dead_letter_topic",
        None,
        TopicName("1 to 249 of the characters a-z A-Z 0-9 . _ -"),
        "Where a record goes that failed for good, with the reason in its headers. None: nowhere."
        " See [failures](failures.md#dead-letters).",
    ),
    Option(
        "compression_type",
        None,
        _CODECS,
        "Codec for whole batches.",
        ("compression.codec",),
    ),
    Option(
        "compression_level",
        None,
        WholeNumber(-131072, 22, instead={None: None}),
        "Level of the codec: gzip -1 to 9, lz4 1 to 17, zstd -131072 to 22. None: its default.",
    ),
    Option(
        "linger_ms",
        5,
        _ms(),
        "How long a batch that is not full waits for more records.",
        ("queue.buffering.max.ms",),
    ),
    Option(
        "topic_options",
        {},
        OptionsByTopic(),
        "Options of single topics instead of the producer's own, for instance"
        ' `{"alerts": {"linger_ms": 0}}`. A topic with a `compression_type` of its own has that'
        " codec's default level unless it sets `compression_level` too; `acks` other than `all`"
        " needs `enable_idempotence=False`.",
    ),
    Option(
        "batch_size",
        16384,
        WholeNumber(1, _MOST_RECORDS, unit="bytes", instead={0: 1}),
        "Size at which a batch is sent without waiting. A larger record travels alone; 0 makes"
        " every record travel alone.",
        ("max_batch_size",),
    ),
    Option(
        "batch_max_size",
        262144,
        WholeNumber(1, _MOST_RECORDS, unit="bytes"),
        "Size up to which a full batch that cannot leave yet goes on filling (KIP-782), as far as"
        " the network has proved to carry: batches for a broker double with what it answers, and"
        " begin anew with `batch_size` when a connection is lost with a request under way. At least"
        " `batch_size` and at most `max_request_size`; when not set, it is raised or lowered to"
        " that, and it is `batch_size` where that is set to less than 16384.",
    ),
    Option(
        "buffer_memory",
        33554432,
        _bytes(1, MAX_INT64),
        "Bound on the memory of records that have no outcome yet. `send` waits when it is used up.",
    ),
    Option(
        "max_block_ms",
        60000,
        _ms(),
        "How long `send` and `partitions_for` may wait, for metadata and for memory together.",
    ),
    Option(
        "max_request_size",
        1048576,
        # A frame's size is a signed 32-bit number, too, and names of topics come on top.
        WholeNumber(1, _MOST_RECORDS, unit="bytes", instead={MAX_INT32: _MOST_RECORDS}),
        "Largest request, and largest record before compression.",
        ("message.max.bytes",),
    ),
    Option(
        "delivery_timeout_ms",
        120000,
        _ms(1),
        "A batch without an outcome this long after `send` of its first record fails, and so do the"
        " records that joined it later. At least `linger_ms` + `request_timeout_ms`; raised to that"
        " when not set.",
        ("message.timeout.ms",),
    ),
    Option("request_timeout_ms", 30000, _ms(1), "How long a broker may take to answer a request."),
    Option(
        "retries",
        MAX_INT32,
        WholeNumber(0, instead={float("inf"): MAX_INT32}),
        "How often a batch is sent again after a passing error, within `delivery_timeout_ms`.",
        ("message.send.max.retries",),
    ),
    Option(
        "retry_backoff_ms",
        100,
        _ms(),
        "Pause before the first retry; doubles with each further one.",
    ),
    Option(
        "retry_backoff_max_ms",
        1000,
        _ms(),
        "Longest pause between retries. Raised to `retry_backoff_ms` when not set.",
    ),
)
_CONNECTION_ROWS = (
    Option(
        "reconnect_backoff_ms",
        50,
        _ms(),
        "Pause before an unreachable broker is tried again; doubles with each failure.",
    ),
    Option(
        "reconnect_backoff_max_ms",
        1000,
        _ms(),
        "Longest pause between attempts to connect. Raised to `reconnect_backoff_ms` when not set.",
    ),
    Option(
        "max_in_flight_requests_per_connection",
        5,
        WholeNumber(1),
        "Requests a broker may owe answers to. At most 5 with idempotence.",
        ("max.in.flight",),
    ),
    Option(
        "metadata_max_age_ms",
        300000,
        _ms(1),
        "What is known of the cluster is asked again after this time.",
        ("topic.metadata.refresh.interval.ms",),
    ),
    Option(
        "metadata_max_idle_ms",
        300000,
        _ms(5000),
        "A topic nothing was sent to for this long is forgotten.",
    ),
    Option(
        "metadata_recovery_strategy",
        "rebootstrap",
        _RECOVERIES,
        "What to do when no known broker can be asked about the cluster: `rebootstrap` asks the"
        " `bootstrap_servers` again, with their names resolved anew (KIP-899); `none` goes on"
        " trying the brokers that are known.",
    ),
    Option(
        "metadata_recovery_rebootstrap_trigger_ms",
        300000,
        _ms(),
        "With `rebootstrap`: when known brokers take connections, but none has told about the"
        " cluster for this long although it was asked, all are forgotten and the"
        " `bootstrap_servers` asked (KIP-1102). A broker may also ask for that itself.",
    ),
    Option(
        "connections_max_idle_ms", 540000, _ms(1), "A connection unused for this long is closed."
    ),
    Option(
        "socket_connection_setup_timeout_ms",
        10000,
        _ms(1),
        "How long connecting to one broker may take, until it has told which requests it knows;"
        " doubles with each time that was too short (KIP-601).",
    ),
    Option(
        "socket_connection_setup_timeout_max_ms",
        30000,
        _ms(1),
        "Longest time that connecting to one broker may take. Raised to"
        " `socket_connection_setup_timeout_ms` when not set.",
    ),
    Option(
        "send_buffer_bytes",
        None,
        _SOCKET_BUFFER,
        "Send buffer of a socket (`SO_SNDBUF`). None leaves it to the system.",
        ("socket.send.buffer.bytes",),
    ),
    Option(
        "receive_buffer_bytes",
        None,
        _SOCKET_BUFFER,
        "Receive buffer of a socket (`SO_RCVBUF`). None leaves it to the system.",
        ("socket.receive.buffer.bytes",),
    ),
    Option(
        "busy_poll_us",
        0,
        WholeNumber(0, 10_000, unit="microseconds"),
        "How long a caller that waits for its record alone looks for the broker's answer without"
        " sleeping, which saves the time it takes to be woken where caller and broker have a core"
        " each, and costs a core for so long where they have not. 0: it sleeps at once.",
    ),
    Option(
        "receive_message_max_bytes",
        16 * 1024 * 1024,
        _bytes(1000),
        "Largest response that is read; a larger one closes the connection.",
    ),
    Option(
        "allow_auto_create_topics",
        True,
        Truth(),
        "Whether asking for an unknown topic may create it, if the broker allows that.",
    ),
    Option(
        "metrics_num_samples",
        2,
        WholeNumber(1, 1000),
        "Windows that rates, averages and maxima of `metrics()` are computed over.",
    ),
    Option(
        "metrics_sample_window_ms",
        30000,
        _ms(1),
        "Length of such a window.",
    ),
    Option(
        "enable_metrics_push",
        True,
        Truth(),
        "Whether brokers get the metrics that they have subscribed to (KIP-714).",
    ),
    Option(
        "transport",
        "tcp",
        TransportPlugin(),
        "How brokers are reached: the name of a transport (`kprod.transport.register`, or the entry"
        " points `kprod.transports` of an installed package), a class or callable that makes a"
        " backend, or a backend, which is then the producer's own and is closed with it.",
    ),
    Option(
        "close_timeout_ms_at_exit",
        1000,
        _ms(),
        "How long a producer that was not closed may go on sending when the interpreter exits, or"
        " when an exception ends its `with` block.",
    ),
    Option(
        "close_on_sigterm",
        False,
        Truth(),
        "Whether the signal SIGTERM, where nothing handles it yet, ends the process by SystemExit"
        " (status 143), so that producers are closed as at any exit. Takes effect when the producer"
        " is made in the main thread.",
    ),
)

GROUPS: Mapping[str, tuple[Option, ...]] = MappingProxyType(
    {"delivery": _DELIVERY_ROWS, "connections": _CONNECTION_ROWS, "security": SECURITY_ROWS}
)
"""The options by what they are about, as the pages of the documentation have them."""
OPTIONS: Mapping[str, Option] = MappingProxyType(
    {row.name: row for rows in GROUPS.values() for row in rows}
)
"""Every option of the producer by name, in the order of the documentation."""
