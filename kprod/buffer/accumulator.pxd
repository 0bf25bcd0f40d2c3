cimport cython

from kprod.buffer.attention cimport Attention
from kprod.buffer.batch cimport ProducerBatch
from kprod.buffer.batch_maker cimport BatchMaker, SpareBatch
from kprod.buffer.batch_queue cimport Appended, BatchQueue
from kprod.buffer.delivery cimport BatchDelivery
from kprod.buffer.growing_map cimport GrowingMap
from kprod.buffer.incomplete cimport IncompleteBatches
from kprod.buffer.place cimport Place
from kprod_ext.buffer_pool cimport BufferPool, PooledBuffer
from kprod_ext.open_batch cimport OpenBatch
from kprod_ext.records_builder cimport batch_size_upper_bound
from kprod_ext.shared cimport SharedCount, SharedFlag


@cython.no_gc           # nothing refers to it but who asked what is ready
cdef class Ready:
    cdef readonly dict nodes
    cdef readonly double next_check
    cdef readonly set leaderless
    cdef readonly object queued


cdef class RecordAccumulator:
    cdef readonly BufferPool pool
    cdef readonly IncompleteBatches incomplete
    cdef readonly object callbacks
    cdef object _clock
    cdef BatchMaker _maker
    cdef object _settings
    cdef object _retry_backoff
    cdef object _wake
    cdef object _ratios
    cdef GrowingMap _queues
    cdef Attention _attention
    cdef object _packing
    cdef SharedCount _flushes
    cdef object _flush_lock
    cdef bint _hurry
    cdef object _hurried
    cdef object _waited
    cdef SharedFlag _closed
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
    cdef void _refuse_when_closed(self) except *

    @cython.locals(queue=BatchQueue)
    cpdef OpenBatch open_batch(self, object tp)

    @cython.locals(queue=BatchQueue)
    cpdef void filled(self, object tp) except *

    @cython.locals(attention=Attention)
    cpdef Ready ready(self, object snapshot, double now, object measured=*)

    cpdef list drain(self, object node_id, object acks, object gate, Py_ssize_t max_bytes)

    @cython.locals(place=Place, queue=BatchQueue, batch=ProducerBatch, room=Py_ssize_t)
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
