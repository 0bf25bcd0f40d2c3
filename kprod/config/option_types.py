"""The options of a producer with their types: written by ``python -m kprod.config types``"""

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
    """A partitioner that is told what became of its choices."""

    def choose(self, topic: Any, key: Any, /) -> int:
        """The number of one of the topic's partitions."""

    def appended(self, topic: Any, partition: int, nbytes: int, batch_ready: bool, /) -> None:
        """A record took ``nbytes`` in ``partition``."""


class ProducerOptions(TypedDict, total=False):
    """Every option of ``KafkaProducer``; see ``docs/configuration.md``."""

    bootstrap_servers: str | Sequence[str | tuple[str, int]]
    """Brokers to ask first; they tell of the others. The port is 9092 unless given."""

    client_id: str | None
    """Name shown in the brokers' logs and used for quotas. None makes ``kprod-producer-N``."""

    profile: Literal[None, "throughput", "latency", "durable"]
    """What the producer is for: a set of options that hold where they are not set themselves.
    ``throughput``: ``linger_ms=50``, ``batch_size=131072``, ``batch_max_size=1048576``,
    ``buffer_memory=134217728``; ``latency``: ``linger_ms=0``, ``busy_poll_us=50``; ``durable``:
    ``acks='all'``, ``enable_idempotence=True``, ``delivery_timeout_ms=1800000``,
    ``close_timeout_ms_at_exit=30000``, ``close_on_sigterm=True``."""

    acks: Literal["all", "-1", -1, "0", 0, "1", 1]
    """Replicas that must have stored a batch before it counts as sent: all in sync (``all``),
    the leader (1), none (0, offsets are unknown then)."""

    enable_idempotence: bool
    """Retries neither duplicate nor reorder records. Needs ``acks=all``, ``retries`` above 0
    and at most 5 requests in flight. When another value of one is set: an error if idempotence
    was asked for, else it is switched off with a warning."""

    transactional_id: str | None
    """Name under which a producer's transactions are known to the cluster; the same one each
    time the same work is taken up again. It makes ``init_transactions`` and what follows
    possible, and everything else impossible outside a transaction. Needs idempotence."""

    transaction_timeout_ms: int
    """A transaction that is open for longer is aborted by its coordinator. At most the brokers'
    ``transaction.max.timeout.ms``."""

    key_serializer: (
        Literal["bytes", "str", "json", "int", "int32", "float"]
        | Callable[[Any], Any]
        | SerializesObjects
        | None
    )
    """Turns keys into bytes. None and ``bytes`` accept bytes only; ``str`` writes UTF-8,
    ``json`` JSON in UTF-8, ``int`` 8 and ``int32`` 4 bytes as Kafka's Long and Integer
    serializers, ``float`` 8 bytes as its Double serializer. An object's ``close()``, if any, is
    called when the producer has ended."""

    value_serializer: (
        Literal["bytes", "str", "json", "int", "int32", "float"]
        | Callable[[Any], Any]
        | SerializesObjects
        | None
    )
    """Turns values into bytes, with the same choices as ``key_serializer``."""

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
    """Chooses the partition of a record that names none. ``default``: by murmur2 of the key, as
    Kafka's Java client does; ``crc32``: as librdkafka's ``consistent_random``; ``fnv1a``: as
    Sarama's hash partitioner. With all three, records without a key stay on one partition until
    a batch is full. ``round_robin``: one after the other, also for equal keys. An object's
    ``close()``, if any, is called when the producer has ended."""

    partitioner_adaptive_partitioning_enable: bool
    """Records without a key go less often to partitions with many batches queued (KIP-794)."""

    partitioner_availability_timeout_ms: int
    """Records without a key avoid brokers that could not take what was ready for them for
    longer than this. 0: they do not."""

    partitioner_ignore_keys: bool
    """Partition records with a key as those without."""

    interceptors: Sequence[object] | None
    """Objects that see every record, as in Kafka before its partition is chosen, and every
    outcome. Their ``close()``, if any, is called when the producer has ended."""

    dead_letter_topic: str | None
    """Where a record goes that failed for good, with the reason in its headers. None: nowhere.
    See [failures](failures.md#dead-letters)."""

    compression_type: Literal[None, "none", "gzip", "snappy", "lz4", "zstd"]
    """Codec for whole batches."""

    compression_level: int | None
    """Level of the codec: gzip -1 to 9, lz4 1 to 17, zstd -131072 to 22. None: its default."""

    linger_ms: int
    """How long a batch that is not full waits for more records."""

    topic_options: Mapping[str, Mapping[str, Any]]
    """Options of single topics instead of the producer's own, for instance ``{"alerts":
    {"linger_ms": 0}}``. A topic with a ``compression_type`` of its own has that codec's default
    level unless it sets ``compression_level`` too; ``acks`` other than ``all`` needs
    ``enable_idempotence=False``."""

    batch_size: int
    max_batch_size: int
    """Size at which a batch is sent without waiting. A larger record travels alone; 0 makes
    every record travel alone."""

    batch_max_size: int
    """Size up to which a full batch that cannot leave yet goes on filling (KIP-782), as far as
    the network has proved to carry: batches for a broker double with what it answers, and begin
    anew with ``batch_size`` when a connection is lost with a request under way. At least
    ``batch_size`` and at most ``max_request_size``; when not set, it is raised or lowered to
    that, and it is ``batch_size`` where that is set to less than 16384."""

    buffer_memory: int
    """Bound on the memory of records that have no outcome yet. ``send`` waits when it is used
    up."""

    max_block_ms: int
    """How long ``send`` and ``partitions_for`` may wait, for metadata and for memory
    together."""

    max_request_size: int
    """Largest request, and largest record before compression."""

    delivery_timeout_ms: int
    """A batch without an outcome this long after ``send`` of its first record fails, and so do
    the records that joined it later. At least ``linger_ms`` + ``request_timeout_ms``; raised to
    that when not set."""

    request_timeout_ms: int
    """How long a broker may take to answer a request."""

    retries: float
    """How often a batch is sent again after a passing error, within ``delivery_timeout_ms``."""

    retry_backoff_ms: int
    """Pause before the first retry; doubles with each further one."""

    retry_backoff_max_ms: int
    """Longest pause between retries. Raised to ``retry_backoff_ms`` when not set."""

    reconnect_backoff_ms: int
    """Pause before an unreachable broker is tried again; doubles with each failure."""

    reconnect_backoff_max_ms: int
    """Longest pause between attempts to connect. Raised to ``reconnect_backoff_ms`` when not
    set."""

    max_in_flight_requests_per_connection: int
    """Requests a broker may owe answers to. At most 5 with idempotence."""

    metadata_max_age_ms: int
    """What is known of the cluster is asked again after this time."""

    metadata_max_idle_ms: int
    """A topic nothing was sent to for this long is forgotten."""

    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    """What to do when no known broker can be asked about the cluster: ``rebootstrap`` asks the
    ``bootstrap_servers`` again, with their names resolved anew (KIP-899); ``none`` goes on
    trying the brokers that are known."""

    metadata_recovery_rebootstrap_trigger_ms: int
    """With ``rebootstrap``: when known brokers take connections, but none has told about the
    cluster for this long although it was asked, all are forgotten and the ``bootstrap_servers``
    asked (KIP-1102). A broker may also ask for that itself."""

    connections_max_idle_ms: int
    """A connection unused for this long is closed."""

    socket_connection_setup_timeout_ms: int
    """How long connecting to one broker may take, until it has told which requests it knows;
    doubles with each time that was too short (KIP-601)."""

    socket_connection_setup_timeout_max_ms: int
    """Longest time that connecting to one broker may take. Raised to
    ``socket_connection_setup_timeout_ms`` when not set."""

    send_buffer_bytes: int | None
    """Send buffer of a socket (``SO_SNDBUF``). None leaves it to the system."""

    receive_buffer_bytes: int | None
    """Receive buffer of a socket (``SO_RCVBUF``). None leaves it to the system."""

    busy_poll_us: int
    """How long a caller that waits for its record alone looks for the broker's answer without
    sleeping, which saves the time it takes to be woken where caller and broker have a core
    each, and costs a core for so long where they have not. 0: it sleeps at once."""

    receive_message_max_bytes: int
    """Largest response that is read; a larger one closes the connection."""

    allow_auto_create_topics: bool
    """Whether asking for an unknown topic may create it, if the broker allows that."""

    metrics_num_samples: int
    """Windows that rates, averages and maxima of ``metrics()`` are computed over."""

    metrics_sample_window_ms: int
    """Length of such a window."""

    enable_metrics_push: bool
    """Whether brokers get the metrics that they have subscribed to (KIP-714)."""

    transport: Any
    """How brokers are reached: the name of a transport (``kprod.transport.register``, or the
    entry points ``kprod.transports`` of an installed package), a class or callable that makes a
    backend, or a backend, which is then the producer's own and is closed with it."""

    close_timeout_ms_at_exit: int
    """How long a producer that was not closed may go on sending when the interpreter exits, or
    when an exception ends its ``with`` block."""

    close_on_sigterm: bool
    """Whether the signal SIGTERM, where nothing handles it yet, ends the process by SystemExit
    (status 143), so that producers are closed as at any exit. Takes effect when the producer is
    made in the main thread."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """How to talk to brokers: in the clear or by TLS (``SSL``), and whether to log in
    (``SASL_``)."""

    ssl_context: ssl.SSLContext | None
    """A context of the application's own, instead of all other ``ssl_`` options."""

    ssl_cafile: str | os.PathLike[str] | None
    """Certificates to trust: of authorities, or the brokers' own. None: those that the system
    trusts. Read again for new connections when the file has changed."""

    ssl_truststore_password: str | Callable[[], str] | None
    """Opens the PKCS#12 store that ``ssl_cafile`` names."""

    ssl_certfile: str | os.PathLike[str] | None
    """Our own certificate, and those it was issued by, for brokers that ask for one. Read again
    for new connections when the file has changed."""

    ssl_keystore_password: str | Callable[[], str] | None
    """Opens the PKCS#12 store that ``ssl_certfile`` names."""

    ssl_keyfile: str | os.PathLike[str] | None
    """The private key of that certificate, if it is not in the same file."""

    ssl_password: str | Callable[[], str] | None
    """Decrypts the private key."""

    ssl_crlfile: str | os.PathLike[str] | None
    """Revocation lists: a broker's certificate must not be on that of its issuer."""

    ssl_ciphers: str | None
    """Cipher suites for TLS 1.2; those of TLS 1.3 are all good."""

    ssl_minimum_version: str
    """The oldest version of TLS; the newest that both ends know is used."""

    ssl_enabled_protocols: Sequence[str] | str | None
    """The versions of TLS to choose from; older ones in the list are passed over. None: all
    that ``ssl_minimum_version`` allows."""

    ssl_check_hostname: bool
    """Whether a broker's certificate has to be for the name or address it is reached by."""

    enable_ssl_certificate_verification: bool
    """False: any certificate will do, so that anybody on the way may read and write
    everything."""

    sasl_mechanism: str | None
    """How to log in. The broker's list of mechanisms never changes it."""

    sasl_plain_username: str | None
    """User of ``PLAIN`` and ``SCRAM-*``."""

    sasl_plain_password: str | Callable[[], str] | None
    """Password of ``PLAIN`` and ``SCRAM-*``. A callable is asked for every connection."""

    sasl_credentials: Callable[..., Any] | None
    """Tells user and password together, for every connection: so that both can be changed."""

    sasl_jaas_config: str | Callable[[], str] | None
    """Java's way to write the login: the options of its usual login modules are taken from
    it."""

    sasl_oauth_token_provider: Any
    oauth_cb: Any
    """Tells the token of ``OAUTHBEARER``: text, or a pair of text and the time it expires at,
    in seconds since 1970. Runs in a thread of its own; may also have ``extensions()``."""

    sasl_oauthbearer_token_endpoint_url: str | None
    """Where tokens of ``OAUTHBEARER`` are fetched from (client credentials grant, RFC 6749,
    4.4)."""

    sasl_oauthbearer_client_id: str | None
    """The client that asks for the token."""

    sasl_oauthbearer_client_secret: str | Callable[[], str] | None
    """The secret of that client."""

    sasl_oauthbearer_scope: str | None
    """What the token should allow."""

    sasl_oauthbearer_cafile: str | os.PathLike[str] | None
    """Certificates of authorities to trust for the token endpoint. None: those that the system
    trusts."""

    sasl_oauthbearer_extensions: Mapping[str, str] | str | None
    """Further names and values for the broker (KIP-342), for instance ``logicalCluster``."""

    sasl_msk_region: str | None
    """Region of ``AWS_MSK_IAM``. None takes the region the host name of the broker tells."""

    sasl_kerberos_service_name: str | None
    """First part of the brokers' Kerberos principals, for ``GSSAPI``."""

    sasl_kerberos_name: str | None
    """Our own principal in Kerberos. None takes that of the ticket cache."""

    sasl_kerberos_domain_name: str | None
    """Host in the brokers' principals, if it is not the one they are reached by."""

    proxy_url: str | None
    socks5_proxy: str | None
    """A proxy all connections go through. ``socks5h`` has it resolve the brokers' names, too,
    and so has ``http``, which is asked to CONNECT. SOCKS needs the package python-socks."""

    unix_socket_path: str | None
    """With ``transport="unix"``: the socket that leads to a broker; ``{host}`` and ``{port}``
    in it stand for the broker's."""
