"""The options of a producer with their types: written by ``python -m tools.pages``"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict

if TYPE_CHECKING:
    import os
    import ssl


class SerializesObjects(Protocol):
    """An object that makes bytes of keys or values, as kafka-python 3 has them."""

    def serialize(self, topic: str, headers: Any, data: Any, /) -> Any:
        """The bytes of ``data``, or None."""


class ChoosesPartitions(Protocol):
    """A partitioner that is notified of the records it has placed."""

    def choose(self, topic: Any, key: Any, /) -> int:
        """The number of one of the topic's partitions."""

    def appended(self, topic: Any, partition: int, nbytes: int, batch_ready: bool, /) -> None:
        """A record took ``nbytes`` in ``partition``."""


class ClientOptions(TypedDict, total=False):
    """Every option of ``KafkaProducer`` but ``bootstrap_servers``."""

    client_id: str | None
    """Client name in the brokers' logs and for quotas. None: ``kprod-producer-N``."""

    client_software_name: str | None
    """Name of the client software in the brokers' metrics (KIP-511). None: ``kprod``."""

    client_software_version: str | None
    """Version of the client software in the brokers' metrics (KIP-511). None: kprod's."""

    profile: Literal[None, "throughput", "latency", "durable"]
    """A set of defaults for a purpose, also in place of those of ``kprod.kafka``,
    ``kprod.aio``, ``kprod.confluent`` and ``kprod.spark``; options that are given take
    precedence. ``throughput``: ``linger_ms=50``, ``batch_size=131072``,
    ``batch_max_size=1048576``, ``buffer_memory=134217728``; ``latency``: ``linger_ms=0``,
    ``busy_poll_us=200``; ``durable``: ``acks='all'``, ``enable_idempotence=True``,
    ``delivery_timeout_ms=1800000``, ``close_timeout_ms_at_exit=20000``,
    ``close_on_sigterm=True``."""

    acks: Literal["all", "-1", -1, "0", 0, "1", 1]
    """Replicas that must store a batch before it is acknowledged: all in sync (``all``), the
    leader (1), or none (0; offsets are unknown then)."""

    enable_idempotence: bool
    """Retries neither duplicate nor reorder records. Needs ``acks=all``, ``retries`` above 0
    and at most 5 requests in flight. If one of these is set to another value: an error if
    idempotence is given, otherwise it is turned off with a warning."""

    transactional_id: str | None
    """The transactional id of the producer in the cluster; use the same one whenever the same
    work is resumed. It enables ``init_transactions`` and the calls after it; records can then
    be sent only in a transaction. Needs idempotence."""

    transaction_timeout_ms: int
    """The coordinator aborts a transaction that is open for longer. At most the brokers'
    ``transaction.max.timeout.ms``."""

    key_serializer: (
        Literal["bytes", "str", "json", "int", "int32", "float"]
        | Callable[[Any], Any]
        | SerializesObjects
        | None
    )
    """Converts keys to bytes. None and ``bytes`` accept bytes only; ``str`` writes UTF-8,
    ``json`` JSON in UTF-8, ``int`` 8 and ``int32`` 4 bytes like Kafka's Long and Integer
    serializers, ``float`` 8 bytes like its Double serializer. An object's ``close()``, if any,
    is called after the producer is closed."""

    value_serializer: (
        Literal["bytes", "str", "json", "int", "int32", "float"]
        | Callable[[Any], Any]
        | SerializesObjects
        | None
    )
    """Converts values to bytes; same choices as ``key_serializer``."""

    partitioner: (
        Literal[
            "default",
            "murmur2",
            "murmur2_random",
            "crc32",
            "consistent_random",
            "fnv1a",
            "fnv1a_random",
            "round_robin",
        ]
        | Callable[..., int]
        | ChoosesPartitions
        | None
    )
    """Chooses the partition of a record without a given one. ``default``: by the murmur2 hash
    of the key, like Kafka's Java client; ``crc32``: like librdkafka's ``consistent_random``;
    ``fnv1a``: like Sarama's hash partitioner. With all three, records without a key stay on one
    partition until a batch is full. ``round_robin``: each partition in turn, even for equal
    keys. An object's ``close()``, if any, is called after the producer is closed."""

    partitioner_adaptive_partitioning_enable: bool
    """Send fewer records without a key to partitions with many queued batches (KIP-794)."""

    partitioner_availability_timeout_ms: int
    """Records without a key avoid brokers that have not accepted ready batches for longer than
    this. 0 turns it off."""

    partitioner_ignore_keys: bool
    """Partition records with a key like those without."""

    interceptors: Sequence[object] | None
    """Objects that are called with every record before its partition is chosen, as in Kafka,
    and with every outcome. Their ``close()``, if any, is called after the producer is
    closed."""

    dead_letter_topic: str | None
    """Topic for records that have finally failed, with the reason in the headers. None: off.
    See [failures](failures.md#dead-letters)."""

    compression_type: Literal[None, "none", "gzip", "snappy", "lz4", "zstd"]
    """Codec for whole batches. ``snappy`` needs ``pip install kprod[snappy]``."""

    compression_level: int | None
    """Compression level: gzip -1 to 9, lz4 1 to 17, zstd -131072 to 22. None: the default."""

    linger_ms: int
    """How long a batch that is not full waits for more records."""

    topic_options: Mapping[str, Mapping[str, Any]]
    """Options per topic that override the producer's, for example ``{"alerts": {"linger_ms":
    0}}``. A topic with its own ``compression_type`` uses the default level of its codec unless
    it also sets ``compression_level``; ``acks`` other than ``all`` needs
    ``enable_idempotence=False``."""

    batch_size: int
    max_batch_size: int
    """Size at which a batch is sent without waiting. A larger record gets its own batch; with 0
    every record does."""

    batch_max_size: int
    """Size up to which a full batch keeps filling while it cannot be sent yet (KIP-782). The
    limit adapts to the network: batches for a broker may double as it acknowledges them, and
    become half as large, down to ``batch_size``, when a connection is lost with a request in
    flight. At least ``batch_size`` and at most ``max_request_size``; the default is adjusted to
    that, and is ``batch_size`` if that is set below 16384."""

    buffer_memory: int
    """Limit of the memory for records without an outcome. ``send`` waits when it is used up."""

    max_block_ms: int
    """How long ``send`` and ``partitions_for`` may wait, for metadata and memory together."""

    max_request_size: int
    """Largest request, and largest record before compression."""

    delivery_timeout_ms: int
    """A batch without an outcome this long after ``send`` of its first record fails, including
    records that were added later. At least ``linger_ms`` + ``request_timeout_ms``; the default
    is raised to that."""

    request_timeout_ms: int
    """How long a broker may take to answer a request."""

    retries: float
    """How often a batch is sent again after a retriable error, within
    ``delivery_timeout_ms``."""

    retry_backoff_ms: int
    """Pause before the first retry; doubles with each retry."""

    retry_backoff_max_ms: int
    """Longest pause between retries. The default is raised to ``retry_backoff_ms``."""

    reconnect_backoff_ms: int
    """Pause before reconnecting to a broker; doubles with each failure."""

    reconnect_backoff_max_ms: int
    """Longest pause between connection attempts. The default is raised to
    ``reconnect_backoff_ms``."""

    max_in_flight_requests_per_connection: int
    """Unanswered requests per broker. At most 5 with idempotence."""

    metadata_max_age_ms: int
    """Metadata is refreshed after this time."""

    metadata_max_idle_ms: int
    """A topic that is unused for this long is removed from the metadata."""

    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    """What to do when no known broker is available for metadata: ``rebootstrap`` starts again
    with the ``bootstrap_servers`` and resolves their names again (KIP-899); ``none`` keeps
    trying the known brokers."""

    metadata_recovery_rebootstrap_trigger_ms: int
    """With ``rebootstrap``: if brokers accept connections but none has answered a metadata
    request for this long, start again with the ``bootstrap_servers`` (KIP-1102). A broker may
    also request this."""

    connections_max_idle_ms: int
    """A connection unused for this long is closed."""

    socket_connection_setup_timeout_ms: int
    """How long connecting to one broker may take, including its answer about the API versions;
    doubles after each time-out (KIP-601)."""

    socket_connection_setup_timeout_max_ms: int
    """Longest time that connecting to one broker may take. The default is raised to
    ``socket_connection_setup_timeout_ms``."""

    send_buffer_bytes: int | None
    """Send buffer of a socket (``SO_SNDBUF``). None: the system's default."""

    receive_buffer_bytes: int | None
    """Receive buffer of a socket (``SO_RCVBUF``). None: the system's default."""

    busy_poll_us: int
    """Maximum time for which a caller that waits for a single record spins on the socket before
    it sleeps. If the broker answers within this time, the record is not delayed by waking the
    thread. If the broker takes longer, callers soon spin in one of 255 waits only. 0 turns it
    off."""

    receive_message_max_bytes: int
    """Largest response; a larger one closes the connection."""

    allow_auto_create_topics: bool
    """Whether a metadata request may create an unknown topic, if the broker allows that."""

    metrics_num_samples: int
    """Number of windows for the rates, averages and maxima of ``metrics()``."""

    metrics_sample_window_ms: int
    """Length of such a window."""

    enable_metrics_push: bool
    """Send brokers the metrics that they subscribe to (KIP-714)."""

    transport: Any
    """How to connect to brokers: the name of a transport (see ``kprod.transport.register`` and
    the entry points ``kprod.transports`` of installed packages), a class or callable that
    returns a backend, or a backend, which the producer then owns and closes. A backend cannot
    be used by a forked child, or together with ``dead_letter_topic``."""

    close_timeout_ms_at_exit: int
    """How long an open producer may keep sending when the interpreter exits, or when an
    exception ends its ``with`` block."""

    close_on_sigterm: bool
    """Install a handler for SIGTERM, if there is none, that raises SystemExit (status 143), so
    that producers are closed as at any exit. Works if the producer is made in the main
    thread."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """How to connect to brokers: plain text or TLS (``SSL``), with or without a login
    (``SASL_``)."""

    ssl_context: ssl.SSLContext | None
    """A custom context, instead of all other ``ssl_`` options."""

    ssl_cafile: str | os.PathLike[str] | None
    """Certificates to trust: of authorities, or the brokers' own. None: those that the system
    trusts. The file is read again for new connections when it has changed. A directory must be
    prepared by ``openssl rehash``."""

    ssl_truststore_password: str | Callable[[], str] | None
    """Opens the PKCS#12 store that ``ssl_cafile`` names."""

    ssl_certfile: str | os.PathLike[str] | None
    """The client's certificate with its chain, for brokers that require one. The file is read
    again for new connections when it has changed."""

    ssl_keystore_password: str | Callable[[], str] | None
    """Opens the PKCS#12 store that ``ssl_certfile`` names."""

    ssl_keyfile: str | os.PathLike[str] | None
    """The private key of the client's certificate, if it is not in the same file."""

    ssl_password: str | Callable[[], str] | None
    """Password of the private key."""

    ssl_crlfile: str | os.PathLike[str] | None
    """Certificate revocation lists: a broker's certificate must not be on its issuer's list."""

    ssl_ciphers: str | None
    """Cipher suites for TLS 1.2; those of TLS 1.3 are not restricted."""

    ssl_minimum_version: str
    """The oldest version of TLS; the newest that both sides support is used."""

    ssl_enabled_protocols: Sequence[str] | str | None
    """The versions of TLS to choose from; older ones in the list are ignored. None: all that
    ``ssl_minimum_version`` allows."""

    ssl_check_hostname: bool
    """Whether a broker's certificate must match the host name or address of the connection."""

    enable_ssl_certificate_verification: bool
    """False accepts any certificate: anyone on the network path can then read and change
    data."""

    sasl_mechanism: str | None
    """How to log in. It is never changed to another mechanism that a broker offers."""

    sasl_plain_username: str | None
    """User of ``PLAIN`` and ``SCRAM-*``."""

    sasl_plain_password: str | Callable[[], str] | None
    """Password of ``PLAIN`` and ``SCRAM-*``. A callable is called for every connection."""

    sasl_credentials: Callable[..., Any] | None
    """Returns user and password together, for every connection, so that both can change."""

    sasl_jaas_config: str | Callable[[], str] | None
    """The login in Java's syntax: the options of Java's usual login modules are read from
    it."""

    sasl_oauth_token_provider: Any
    oauth_cb: Any
    """Returns the token of ``OAUTHBEARER``: text, or a pair of text and expiry time in seconds
    since 1970. Called in a separate thread; may also have ``extensions()``."""

    sasl_oauthbearer_token_endpoint_url: str | None
    """Endpoint for tokens of ``OAUTHBEARER`` (client credentials grant, RFC 6749, 4.4)."""

    sasl_oauthbearer_client_id: str | None
    """The client id of the token request."""

    sasl_oauthbearer_client_secret: str | Callable[[], str] | None
    """The client secret of the token request."""

    sasl_oauthbearer_scope: str | None
    """The scope of the token request."""

    sasl_oauthbearer_cafile: str | os.PathLike[str] | None
    """Certificates of authorities to trust for the token endpoint. None: those that the system
    trusts."""

    sasl_oauthbearer_extensions: Mapping[str, str] | str | None
    """SASL extensions for the broker (KIP-342), for example ``logicalCluster``."""

    sasl_msk_region: str | None
    """Region of ``AWS_MSK_IAM``. None: the region in the broker's host name."""

    sasl_kerberos_service_name: str | None
    """Service name: the first part of the brokers' Kerberos principals, for ``GSSAPI``."""

    sasl_kerberos_name: str | None
    """The client's Kerberos principal. None: that of the ticket cache."""

    sasl_kerberos_domain_name: str | None
    """Host name in the brokers' principals, if it differs from that of the connection."""

    proxy_url: str | None
    socks5_proxy: str | None
    """A proxy for all connections. With ``socks5h`` and ``http`` (CONNECT), the proxy also
    resolves the brokers' names. SOCKS needs the package python-socks."""

    unix_socket_path: str | None
    """With ``transport="unix"``: the path of a broker's socket; ``{host}`` and ``{port}`` in it
    are replaced by the broker's."""


class ProducerOptions(ClientOptions, total=False):
    """Every option of ``KafkaProducer``; see ``docs/configuration.md``."""

    bootstrap_servers: str | Sequence[str | tuple[str, int]]
    """Brokers to connect to first; the other brokers are discovered from them. The default port
    is 9092."""
