cimport cython

from kprod.buffer.ready_tracker cimport ReadyTracker, Ready
from kprod.buffer.batch cimport ProducerBatch
from kprod.buffer.batch_maker cimport BatchMaker, SpareBatch
from kprod.buffer.batch_queue cimport Appended, BatchQueue
from kprod.buffer.delivery cimport BatchDelivery
from kprod.buffer.incomplete cimport IncompleteBatches
from kprod.buffer.queue_list cimport QueueList
from kprod_ext.buffer_pool cimport BufferPool, PooledBuffer
from kprod_ext.record_clock cimport RecordClock
from kprod_ext.batch cimport batch_size_upper_bound
from kprod_ext.shared cimport SharedCount, SharedFlag


cdef class RecordAccumulator:
    cdef readonly BufferPool pool
    cdef readonly IncompleteBatches incomplete
    cdef readonly object callbacks
    cdef readonly RecordClock record_clock
    cdef readonly Py_ssize_t batch_size
    cdef readonly Py_ssize_t batch_max_size
    cdef object _clock
    cdef BatchMaker _maker
    cdef object _settings
    cdef object _retry_backoff
    cdef object _wake
    cdef object _ratios
    cdef object _queues
    cdef ReadyTracker _ready_tracker
    cdef readonly object let_grow
    cdef object _batch_compression
    cdef SharedCount _flushes
    cdef object _flush_lock
    cdef bint _hurry
    cdef object _hurried
    cdef object _waited
    cdef SharedFlag _closed
    cdef public object refusal
    cdef object __weakref__

    @cython.locals(
        queue=BatchQueue, appended=Appended, buffer=PooledBuffer, batch=ProducerBatch
    )
    cpdef Appended append(
        self,
        object tp,
        object timestamp_ms,
        object key,
        object value,
        object headers,
        double timeout,
    )

    cdef void _take_back(self, ProducerBatch batch, PooledBuffer buffer) except *

    @cython.locals(queue=BatchQueue)
    cpdef list spare_batches(self, object tp, Py_ssize_t count)

    @cython.locals(queue=BatchQueue, batch=ProducerBatch)
    cpdef BatchDelivery publish(self, object tp, SpareBatch spare)

    cpdef object _hurry_up(self, BatchQueue queue)
    cpdef void let_in(self) except *
    cdef object _refused(self)

    cpdef BatchQueue queue(self, object tp)

    @cython.locals(queue=BatchQueue)
    cpdef void filled(self, object tp) except *

    @cython.locals(ready_tracker=ReadyTracker)
    cpdef Ready ready(self, object snapshot, double now, object measured=*)

    cpdef list drain(self, object node_id, object acks, object gate, Py_ssize_t max_bytes)

    @cython.locals(place=QueueList, queue=BatchQueue, batch=ProducerBatch, room=Py_ssize_t)
    cdef void _drain(
        self, list taken, object node_id, object acks, object gate, Py_ssize_t max_bytes
    ) except *

    @cython.locals(queue=BatchQueue)
    cpdef void reopened(self, object partitions) except *

    cdef bint _make_ready(
        self, ProducerBatch batch, BatchQueue queue, object gate, Py_ssize_t room
    ) except -1

    @cython.locals(queue=BatchQueue)
    cpdef void put_back(self, ProducerBatch batch) except *

    cpdef list take_expired(self, double created_before)
    cpdef list take_all(self)

    @cython.locals(queue=BatchQueue)
    cpdef void remove(self, ProducerBatch batch) except *

    cpdef double next_expiry(self) except? -1.0
    cdef BatchQueue _queue_of(self, ProducerBatch batch)
