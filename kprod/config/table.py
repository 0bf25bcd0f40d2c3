"""The table of options: the single source of their names, defaults, ranges and meanings."""

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
    SoftwareText,
    TransportPlugin,
    Truth,
    WholeNumber,
)
from kprod.config.option import Option
from kprod.config.security_options import SECURITY_ROWS
from kprod.config.topic_options import OptionsByTopic, TopicName

PROFILES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Batches wait to fill, and may grow to the largest request.
        "throughput": {
            "linger_ms": 50,
            "batch_size": 131072,
            "batch_max_size": 1048576,
            "buffer_memory": 134217728,
        },
        # No batch waits for more records, and a caller that waits for its record spins first.
        "latency": {"linger_ms": 0, "busy_poll_us": 200},
        # Survives an outage of the cluster for as long as it takes to repair it.
        "durable": {
            "acks": "all",
            "enable_idempotence": True,
            "delivery_timeout_ms": 1800000,
            "close_timeout_ms_at_exit": 20000,
            "close_on_sigterm": True,
        },
    }
)
"""The options that each profile sets, unless they are given."""


def described() -> str:
    """What each profile sets, in Markdown."""
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
        "Brokers to connect to first; the other brokers are discovered from them. The default port"
        " is 9092.",
        ("metadata.broker.list",),
    ),
    Option(
        "client_id",
        None,
        ProtocolText(),
        "Client name in the brokers' logs and for quotas. None: `kprod-producer-N`.",
    ),
    Option(
        "client_software_name",
        None,
        SoftwareText(),
        "Name of the client software in the brokers' metrics (KIP-511). None: `kprod`.",
    ),
    Option(
        "client_software_version",
        None,
        SoftwareText(),
        "Version of the client software in the brokers' metrics (KIP-511). None: kprod's.",
    ),
    Option(
        "profile",
        None,
        Choice({None: None, **{name: name for name in PROFILES}}, "str or None", _NAMED_PROFILES),
        "A set of defaults for a purpose, also in place of those of `kprod.kafka`, `kprod.aio`,"
        " `kprod.confluent` and `kprod.spark`; options that are given take precedence."
        f" {described()}.",
    ),
    Option(
        "acks",
        "all",
        _ACKS,
        "Replicas that must store a batch before it is acknowledged: all in sync (`all`), the"
        " leader (1), or none (0; offsets are unknown then).",
        ("request.required.acks",),
    ),
    Option(
        "enable_idempotence",
        True,
        Truth(),
        "Retries neither duplicate nor reorder records. Needs `acks=all`, `retries` above 0 and"
        " at most 5 requests in flight. If one of these is set to another value: an error if"
        " idempotence is given, otherwise it is turned off with a warning.",
    ),
    Option(
        "transactional_id",
        None,
        ProtocolText(1),
        "The transactional id of the producer in the cluster; use the same one whenever the same"
        " work is resumed. It enables `init_transactions` and the calls after it; records can then"
        " be sent only in a transaction. Needs idempotence.",
    ),
    Option(
        "transaction_timeout_ms",
        60000,
        _ms(1),
        "The coordinator aborts a transaction that is open for longer. At most the brokers'"
        " `transaction.max.timeout.ms`.",
    ),
    Option(
        "key_serializer",
        None,
        _SERIALIZER,
        "Converts keys to bytes. None and `bytes` accept bytes only; `str` writes UTF-8, `json`"
        " JSON in UTF-8, `int` 8 and `int32` 4 bytes like Kafka's Long and Integer serializers,"
        " `float` 8 bytes like its Double serializer. An object's `close()`, if any, is called"
        " after the producer is closed.",
    ),
    Option(
        "value_serializer",
        None,
        _SERIALIZER,
        "Converts values to bytes; same choices as `key_serializer`.",
    ),
    Option(
        "partitioner",
        "default",
        PartitionerPlugin(),
        "Chooses the partition of a record without a given one. `default`: by the murmur2 hash of"
        " the key, like Kafka's Java client; `crc32`: like librdkafka's `consistent_random`;"
        " `fnv1a`: like Sarama's hash partitioner. With all three, records without a key stay on"
        " one partition until a batch is full. `round_robin`: each partition in turn, even for"
        " equal keys. An object's `close()`, if any, is called after the producer is closed.",
        ("partitioner.class",),
    ),
    Option(
        "partitioner_adaptive_partitioning_enable",
        True,
        Truth(),
        "Send fewer records without a key to partitions with many queued batches (KIP-794).",
    ),
    Option(
        "partitioner_availability_timeout_ms",
        0,
        _ms(),
        "Records without a key avoid brokers that have not accepted ready batches for longer than"
        " this. 0 turns it off.",
    ),
    Option(
        "partitioner_ignore_keys",
        False,
        Truth(),
        "Partition records with a key like those without.",
    ),
    Option(
        "interceptors",
        (),
        InterceptorPlugins(),
        "Objects that are called with every record before its partition is chosen, as in Kafka, and"
        " with every outcome. Their `close()`, if any, is called after the producer is closed.",
        ("interceptor.classes",),
    ),
    Option(
        "dead_letter_topic",
        None,
        TopicName("1 to 249 of the characters a-z A-Z 0-9 . _ -"),
        "Topic for records that have finally failed, with the reason in the headers. None: off."
        " See [failures](failures.md#dead-letters).",
    ),
    Option(
        "compression_type",
        None,
        _CODECS,
        "Codec for whole batches. `snappy` needs `pip install kprod[snappy]`.",
        ("compression.codec",),
    ),
    Option(
        "compression_level",
        None,
        WholeNumber(-131072, 22, instead={None: None}),
        "Compression level: gzip -1 to 9, lz4 1 to 17, zstd -131072 to 22. None: the default.",
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
        "Options per topic that override the producer's, for example"
        ' `{"alerts": {"linger_ms": 0}}`. A topic with its own `compression_type` uses the default'
        " level of its codec unless it also sets `compression_level`; `acks` other than `all` needs"
        " `enable_idempotence=False`.",
    ),
    Option(
        "batch_size",
        16384,
        WholeNumber(1, _MOST_RECORDS, unit="bytes", instead={0: 1}),
        "Size at which a batch is sent without waiting. A larger record gets its own batch; with 0"
        " every record does.",
        ("max_batch_size",),
    ),
    Option(
        "batch_max_size",
        262144,
        WholeNumber(1, _MOST_RECORDS, unit="bytes"),
        "Size up to which a full batch keeps filling while it cannot be sent yet (KIP-782). The"
        " limit adapts to the network: batches for a broker may double as it acknowledges them, and"
        " become half as large, down to `batch_size`, when a connection is lost with a request in"
        " flight. At least `batch_size` and at most `max_request_size`; the default is adjusted to"
        " that, and is `batch_size` if that is set below 16384.",
    ),
    Option(
        "buffer_memory",
        33554432,
        _bytes(1, MAX_INT64),
        "Limit of the memory for records without an outcome. `send` waits when it is used up.",
    ),
    Option(
        "max_block_ms",
        60000,
        _ms(),
        "How long `send` and `partitions_for` may wait, for metadata and memory together.",
    ),
    Option(
        "max_request_size",
        1048576,
        # A frame's size is also a signed 32-bit number, and includes the names of topics.
        WholeNumber(1, _MOST_RECORDS, unit="bytes", instead={MAX_INT32: _MOST_RECORDS}),
        "Largest request, and largest record before compression.",
        ("message.max.bytes",),
    ),
    Option(
        "delivery_timeout_ms",
        120000,
        _ms(1),
        "A batch without an outcome this long after `send` of its first record fails, including"
        " records that were added later. At least `linger_ms` + `request_timeout_ms`; the default"
        " is raised to that.",
        ("message.timeout.ms",),
    ),
    Option("request_timeout_ms", 30000, _ms(1), "How long a broker may take to answer a request."),
    Option(
        "retries",
        MAX_INT32,
        WholeNumber(0, instead={float("inf"): MAX_INT32}),
        "How often a batch is sent again after a retriable error, within `delivery_timeout_ms`.",
        ("message.send.max.retries",),
    ),
    Option(
        "retry_backoff_ms",
        100,
        _ms(),
        "Pause before the first retry; doubles with each retry.",
    ),
    Option(
        "retry_backoff_max_ms",
        1000,
        _ms(),
        "Longest pause between retries. The default is raised to `retry_backoff_ms`.",
    ),
)
_CONNECTION_ROWS = (
    Option(
        "reconnect_backoff_ms",
        50,
        _ms(),
        "Pause before reconnecting to a broker; doubles with each failure.",
    ),
    Option(
        "reconnect_backoff_max_ms",
        1000,
        _ms(),
        "Longest pause between connection attempts. The default is raised to"
        " `reconnect_backoff_ms`.",
    ),
    Option(
        "max_in_flight_requests_per_connection",
        5,
        WholeNumber(1),
        "Unanswered requests per broker. At most 5 with idempotence.",
        ("max.in.flight",),
    ),
    Option(
        "metadata_max_age_ms",
        300000,
        _ms(1),
        "Metadata is refreshed after this time.",
        ("topic.metadata.refresh.interval.ms",),
    ),
    Option(
        "metadata_max_idle_ms",
        300000,
        _ms(5000),
        "A topic that is unused for this long is removed from the metadata.",
    ),
    Option(
        "metadata_recovery_strategy",
        "rebootstrap",
        _RECOVERIES,
        "What to do when no known broker is available for metadata: `rebootstrap` starts again with"
        " the `bootstrap_servers` and resolves their names again (KIP-899); `none` keeps trying the"
        " known brokers.",
    ),
    Option(
        "metadata_recovery_rebootstrap_trigger_ms",
        300000,
        _ms(),
        "With `rebootstrap`: if brokers accept connections but none has answered a metadata request"
        " for this long, start again with the `bootstrap_servers` (KIP-1102). A broker may also"
        " request this.",
    ),
    Option(
        "connections_max_idle_ms", 540000, _ms(1), "A connection unused for this long is closed."
    ),
    Option(
        "socket_connection_setup_timeout_ms",
        10000,
        _ms(1),
        "How long connecting to one broker may take, including its answer about the API versions;"
        " doubles after each time-out (KIP-601).",
    ),
    Option(
        "socket_connection_setup_timeout_max_ms",
        30000,
        _ms(1),
        "Longest time that connecting to one broker may take. The default is raised to"
        " `socket_connection_setup_timeout_ms`.",
    ),
    Option(
        "send_buffer_bytes",
        None,
        _SOCKET_BUFFER,
        "Send buffer of a socket (`SO_SNDBUF`). None: the system's default.",
        ("socket.send.buffer.bytes",),
    ),
    Option(
        "receive_buffer_bytes",
        None,
        _SOCKET_BUFFER,
        "Receive buffer of a socket (`SO_RCVBUF`). None: the system's default.",
        ("socket.receive.buffer.bytes",),
    ),
    Option(
        "busy_poll_us",
        50,
        WholeNumber(0, 10_000, unit="microseconds"),
        "Maximum time for which a caller that waits for a single record spins on the socket before"
        " it sleeps. If the broker answers within this time, the record is not delayed by waking"
        " the thread. If the broker takes longer, callers soon spin in one of 255 waits only. 0"
        " turns it off.",
    ),
    Option(
        "receive_message_max_bytes",
        16 * 1024 * 1024,
        _bytes(1000),
        "Largest response; a larger one closes the connection.",
    ),
    Option(
        "allow_auto_create_topics",
        True,
        Truth(),
        "Whether a metadata request may create an unknown topic, if the broker allows that.",
    ),
    Option(
        "metrics_num_samples",
        2,
        WholeNumber(1, 1000),
        "Number of windows for the rates, averages and maxima of `metrics()`.",
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
        "Send brokers the metrics that they subscribe to (KIP-714).",
    ),
    Option(
        "transport",
        "tcp",
        TransportPlugin(),
        "How to connect to brokers: the name of a transport (see `kprod.transport.register` and the"
        " entry points `kprod.transports` of installed packages), a class or callable that returns"
        " a backend, or a backend, which the producer then owns and closes. A backend cannot be"
        " used by a forked child, or together with `dead_letter_topic`.",
    ),
    Option(
        "close_timeout_ms_at_exit",
        1000,
        _ms(),
        "How long an open producer may keep sending when the interpreter exits, or when an"
        " exception ends its `with` block.",
    ),
    Option(
        "close_on_sigterm",
        False,
        Truth(),
        "Install a handler for SIGTERM, if there is none, that raises SystemExit (status 143), so"
        " that producers are closed as at any exit. Works if the producer is made in the main"
        " thread.",
    ),
)

GROUPS: Mapping[str, tuple[Option, ...]] = MappingProxyType(
    {"delivery": _DELIVERY_ROWS, "connections": _CONNECTION_ROWS, "security": SECURITY_ROWS}
)
"""The options by subject, as on the pages of the documentation."""
OPTIONS: Mapping[str, Option] = MappingProxyType(
    {row.name: row for rows in GROUPS.values() for row in rows}
)
"""Every option of the producer by name, in the order of the documentation."""
