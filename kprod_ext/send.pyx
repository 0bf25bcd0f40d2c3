# cython: language_level=3, auto_pickle=False, autotestdict=False
"""``send`` in the steady state: one call, no Python frame, the record straight into a batch.

This path takes records with a key and a value that are bytes-like or None, or become so by the
serializers, to a topic and partition that were used before. It opens a new batch itself when the
open one has no room and the pool has free memory. The Python path sends all other records and
raises the errors of bad arguments. It also admits a partition to this path.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_CheckExact
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.memoryview cimport PyMemoryView_GET_BUFFER

from kprod_ext.futures cimport FutureRecordMetadata
from kprod_ext.partition_queue cimport (
    AppendContext,
    AppendResult,
    PartitionQueue,
    StickyPartition,
    append_record,
)
from kprod_ext.process cimport Generation, current_generation, generation_mark
from kprod_ext.record cimport (
    Field,
    HeldRecord,
    NO_TIME,
    Record,
    are_frozen,
    hold_record,
    kprod_prefetch_to_write,
    partition_of,
    partition_of_key,
    payload_size,
    release_record,
    timestamp_of,
)
from kprod_ext.shared cimport KPROD_HAS_GIL, kprod_look_up, release_lock, take_lock

cdef extern from *:
    BatchTail* kprod_get(BatchTail* place) noexcept nogil           # see shared.pxd
    void* kprod_get_guess "kprod_get" (void* place) noexcept nogil
    void kprod_put(void* place, void* address) noexcept nogil

cdef const Generation* MARK = generation_mark()

cdef enum:
    ELSEWHERE = -1          # not for the compiled path
    LARGEST_PARTITION = 0x7FFFFFFF


@cython.final
@cython.no_gc_clear     # as in send.pxd
cdef class TopicAppender:
    """Appends records of one topic to the queues of the partitions that were admitted."""

    def __cinit__(self, Py_ssize_t partition_count, Py_ssize_t largest):
        if not 1 <= partition_count <= LARGEST_PARTITION:
            raise ValueError(f"a topic has 1 to 2**31 - 1 partitions, not {partition_count}")
        self._entrances = <Entrance*>PyMem_Calloc(<size_t>partition_count, sizeof(Entrance))
        if self._entrances == NULL:
            raise MemoryError(f"no memory for {partition_count} partitions")
        self._partitions = [None] * partition_count
        self.partition_count = partition_count
        self._largest = largest

    def __dealloc__(self):
        PyMem_Free(self._entrances)

    def admit(self, Py_ssize_t partition, PartitionQueue queue not None):
        """Let records of this partition take the compiled path."""
        if not 0 <= partition < self.partition_count:
            raise IndexError(f"there is no partition {partition}")
        with cython.critical_section(self):
            if self._context is None:
                self._context = queue.context
            elif queue.context is not self._context:
                raise TypeError("the queues of one appender are all of one accumulator")
            if self._entrances[partition].tail == NULL:
                self._partitions[partition] = queue
                # Release: a thread that gets the tail sees the queue, its fields and the stores
                # above. `_context` is read before the tail, but it is set before the appender is
                # opened, and the dict of the open appenders publishes it.
                kprod_put(self._entrances[partition].tail, queue.tail)

    def admits(self, Py_ssize_t partition):
        """Whether records of this partition may take the compiled path."""
        if not 0 <= partition < self.partition_count:
            return False
        return kprod_get(self._entrances[partition].tail) != NULL

    def stick(self, StickyPartition sticky):
        """Append records without a key to this partition; None: the Python path places them."""
        self._exchange(sticky)

    cdef StickyPartition _exchange(self, StickyPartition sticky):
        """Returns the former one, which the caller drops: nothing may be freed under the lock."""
        cdef StickyPartition former
        take_lock(&self._lock)
        former, self._sticky = self._sticky, sticky
        release_lock(&self._lock)
        return former

    cdef StickyPartition _go_on(self, StickyPartition spent):
        """The partition after ``spent``, to which records without a key go from now on.

        If ``stick`` has replaced ``spent`` meanwhile, that stays: a later one of this chain may
        have lost its leader.
        """
        cdef StickyPartition sticky = spent.current()
        take_lock(&self._lock)
        if self._sticky is spent:
            self._sticky = sticky           # frees nothing: the caller refers to `spent`
        release_lock(&self._lock)
        return sticky

    cdef StickyPartition _stuck_to(self):
        """The sticky partition, when another thread may replace it at any moment."""
        cdef StickyPartition sticky
        take_lock(&self._lock)
        sticky = self._sticky
        release_lock(&self._lock)
        return sticky

    cdef FutureRecordMetadata append_plain(
        self,
        object key,
        object value,
        object partition,
        object timestamp_ms,
    ):
        """Append a record without headers; key and value are bytes or None."""
        cdef Record record
        cdef Py_ssize_t size = 0
        record.key.data = record.value.data = NULL
        record.key.size = record.value.size = -1
        if key is not None:
            record.key.data = PyBytes_AS_STRING(key)
            record.key.size = size = PyBytes_GET_SIZE(key)
        if value is not None:
            record.value.data = PyBytes_AS_STRING(value)
            record.value.size = PyBytes_GET_SIZE(value)
            size += record.value.size       # both are in memory, so the sum cannot overflow
        record.headers = NULL
        record.header_count = 0
        if size > self._largest:
            return None
        return self._append(&record, partition, timestamp_ms)

    cdef FutureRecordMetadata append_held(
        self, object key, object value, object headers, object partition, object timestamp_ms
    ):
        """Append a record; key and value are bytes-like or None, headers a tuple or a list."""
        cdef HeldRecord held
        cdef FutureRecordMetadata future = None
        cdef Py_ssize_t size
        # A copy of a list: another thread may change it while its pairs are looked at.
        cdef tuple pairs = tuple(headers)
        if not are_frozen(pairs):
            return None
        try:
            hold_record(&held, 0, key, value, pairs)
        except (ValueError, BufferError, TypeError):
            return None                     # the Python path raises an error with the cause
        try:
            size = payload_size(&held.record)
            if 0 <= size <= self._largest:
                future = self._append(&held.record, partition, timestamp_ms)
        finally:
            release_record(&held)
        return future

    cdef FutureRecordMetadata _append(self, Record* record, object partition, object timestamp_ms):
        cdef StickyPartition sticky = self._sticky if KPROD_HAS_GIL else self._stuck_to()
        cdef Py_ssize_t place, nbytes = 0
        cdef bint full = False
        cdef Entrance* entrance
        cdef BatchTail* tail
        cdef char* next_place = NULL
        cdef AppendContext context = self._context
        cdef AppendResult result
        cdef FutureRecordMetadata future
        if timestamp_ms is None:
            record.timestamp_ms = NO_TIME
        else:
            record.timestamp_ms = timestamp_of(timestamp_ms)
            if record.timestamp_ms < 0:
                return None
        if sticky is not None and sticky.spent:
            sticky = self._go_on(sticky)
        place = self._place(&record.key, partition, sticky)
        if place == ELSEWHERE:
            return None
        entrance = &self._entrances[place]
        tail = kprod_get(entrance.tail)     # acquire: with it come the queue and its fields
        if tail == NULL:
            return None
        # The guess may be stale, or of another thread: a prefetch never fails, and reads nothing.
        # Both prefetches first: one cache miss can take longer than the rest of the append.
        kprod_prefetch_to_write(tail)
        kprod_prefetch_to_write(kprod_get_guess(entrance.place))
        future = append_record(
            tail, context.clock, record, &nbytes, &full, &next_place
        )
        if future is None:
            if context.callbacks.crowded:   # the Python path waits for them
                return None
            if timestamp_ms is None:
                record.timestamp_ms = NO_TIME
            result = (<PartitionQueue>self._partitions[place]).append_or_open_batch(
                record, None, False
            )
            if result is None:
                return None
            future, nbytes, full = result.future, result.nbytes, result.batch_ready
        else:
            kprod_put(entrance.place, next_place)
            if full:
                (<PartitionQueue>self._partitions[place]).batch_filled()
        if sticky is not None and sticky.partition == place:
            sticky.count(nbytes, full)
        return future

    cdef Py_ssize_t _place(
        self, const Field* key, object partition, StickyPartition sticky
    ) noexcept:
        """The partition's number, or ELSEWHERE."""
        cdef Py_ssize_t place
        if partition is None:
            if key.size < 0:
                # It may have been chosen when the topic had more partitions than it has now.
                if sticky is None or sticky.spent or sticky.partition >= self.partition_count:
                    return ELSEWHERE
                return sticky.partition
            return partition_of_key(key.data, key.size, self.partition_count)
        place = partition_of(partition)
        return place if place < self.partition_count else ELSEWHERE


cdef inline bint is_plain(object data) noexcept:
    return data is None or PyBytes_CheckExact(data)


cdef inline bint is_bytes_like(object data) noexcept:
    """Whether the bytes are contiguous and can be borrowed without running Python code."""
    cdef Py_buffer* view
    if is_plain(data) or PyByteArray_CheckExact(data):
        return True
    if type(data) is not memoryview:
        return False
    view = PyMemoryView_GET_BUFFER(data)
    return view.ndim == 1 and view.itemsize == 1


cdef inline bint are_usual(object partition, object timestamp_ms) except -1:
    """Whether a record may have these headers; the Python path raises the error for others."""
    return (
        (partition is None or partition_of(partition) >= 0)
        and (timestamp_ms is None or timestamp_of(timestamp_ms) >= 0)
    )


@cython.final
cdef class TopicAppenders:
    """The appenders of the topics that take the compiled path."""

    def __cinit__(self):
        self._appenders = {}

    def get(self, str topic not None):
        """The appender of a topic, or None."""
        return kprod_look_up(self._appenders, topic)

    def open(self, str topic not None, TopicAppender appender not None):
        """Let a topic's records take the compiled path."""
        cdef TopicAppender former
        with cython.critical_section(self):
            former = self._appenders.get(topic)
            appender._closed = False
            self._appenders[topic] = appender
            if former is not None and former is not appender:
                former._closed = True

    def close(self, str topic not None):
        """Send a topic's records through the Python path."""
        cdef TopicAppender appender
        with cython.critical_section(self):
            appender = self._appenders.pop(topic, None)
            if appender is not None:
                appender._closed = True

    def clear(self):
        """Send everything through the Python path."""
        cdef list appenders
        with cython.critical_section(self):
            appenders = list(self._appenders.values())
            self._appenders.clear()
            for appender in appenders:
                (<TopicAppender>appender)._closed = True

    def partition_counts(self):
        """Partitions by topic, as the appenders have them."""
        cdef list appenders = list(self._appenders.items())     # a copy: other threads open topics
        return {topic: (<TopicAppender>appender).partition_count for topic, appender in appenders}


cdef class CompiledSend:
    """A producer's ``send``; ``_send`` of the subclass is the Python path.

    ``_send_serialized`` is its part after the serializers, ``_send_with_callback`` calls ``send``
    without the callback.
    """

    def __cinit__(self, *args, **kwargs):
        self._topic_appenders = TopicAppenders()
        self._generation = current_generation()

    @cython.binding(False)              # a C method: the cheapest to call
    @cython.embedsignature(True)
    @cython.embedsignature.format("clinic")
    def send(
        self, topic, value=None, key=None, headers=None, partition=None, timestamp_ms=None,
        callback=None
    ):
        """Queue one record; its future has the record's position in the log, or its error.

        ``value`` and ``key`` are bytes-like or None, or what the serializers accept; ``headers``
        are a dict or a list of ``(str, bytes | None)`` pairs; ``timestamp_ms`` is milliseconds
        since the epoch (None: now). If this returns, ``callback(metadata, error)`` is called once,
        in the callback thread. ``error`` is None for a stored record; otherwise ``metadata`` has
        the topic and partition, and -1 for the rest. Returns immediately, unless the topic is new,
        ``buffer_memory`` is full, or very many delivery callbacks are waiting; then it waits at
        most ``max_block_ms``.

        Raises, with nothing queued: InvalidTopicError, InvalidRecordError, RecordTypeError,
        SerializationError, PartitionError, RecordTooLargeError for an invalid argument;
        KprodTimeoutError if the topic's metadata is not available in time, BufferFullError if there
        is no memory in that time; BrokerError and AuthenticationError if the cluster refuses the
        topic or the client; ProducerClosedError after ``close``.
        """
        cdef TopicAppender appender = self._latest if KPROD_HAS_GIL else None
        cdef FutureRecordMetadata future = None
        cdef bint serialized = False
        if callback is not None:
            return self._send_with_callback(
                callback, topic, value, key, headers, partition, timestamp_ms
            )
        if MARK[0] != self._generation:         # a forked child: the Python path begins anew there
            return self._send(topic, value, key, headers, partition, timestamp_ms)
        # The topic is most often the same object as that of the last record. `_closed` catches an
        # appender closed after it was cached.
        if appender is None or appender._name is not topic or appender._closed:
            appender = self._find_appender(topic)
        if appender is not None and self._serialize is not None:
            if headers is not None or not are_usual(partition, timestamp_ms):
                return self._send(topic, value, key, headers, partition, timestamp_ms)
            key, value, headers = self._serialize(topic, key, value, ())
            headers = headers or None
            serialized = True
            if appender._closed:                # while a serializer ran
                appender = None
        if appender is not None:
            if headers is None and is_plain(key) and is_plain(value):
                future = appender.append_plain(key, value, partition, timestamp_ms)
            elif (
                (headers is None or type(headers) is list or type(headers) is tuple)
                and is_bytes_like(key)
                and is_bytes_like(value)
            ):
                headers = () if headers is None else headers
                future = appender.append_held(key, value, headers, partition, timestamp_ms)
            if future is not None:
                return future
        if serialized:
            return self._send_serialized(topic, value, key, headers, partition, timestamp_ms)
        return self._send(topic, value, key, headers, partition, timestamp_ms)

    @property
    def _inherited(self):
        """Whether this process was forked from the one whose memory and connections these are."""
        return MARK[0] != self._generation

    def _belong_here(self):
        """Its state was made in this process."""
        self._generation = current_generation()

    def _serialize_by(self, serialize):
        """Let ``serialize(topic, key, value, headers)`` make (key, value, headers) of records."""
        self._serialize = serialize

    cdef TopicAppender _find_appender(self, object topic):
        """The appender of a topic, remembered for the next record; None when it has none."""
        cdef TopicAppender appender = None
        if type(topic) is str:
            appender = kprod_look_up(self._topic_appenders._appenders, topic)
        # Without a GIL the cached reference could be freed by another thread, so no cache is used.
        if KPROD_HAS_GIL and appender is not None:
            appender._name = <str>topic
            self._latest = appender
        return appender
