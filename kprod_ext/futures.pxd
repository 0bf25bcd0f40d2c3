"""The fields of a batch's outcome and of a record's future, and the making of a future.

Each record has a future of its own, so the future is small, 48 bytes: it has no table of C methods
(functions beside it replace them), no header of the garbage collector, and 32 bits for each field
that is an int32 on the wire.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

from kprod_ext.shared cimport RecordLock, SharedFlag

# Which objects the garbage collector walks over, for the other compiled modules.

cpdef void track(object one) noexcept
cpdef void untrack(object one) noexcept


cdef class BatchOutcome:
    cdef readonly object tp
    cdef readonly SharedFlag done
    cdef public SharedFlag awaited
    cdef public SharedFlag is_watched
    cdef readonly SharedFlag has_listeners
    cdef readonly SharedFlag is_split
    cdef readonly int64_t base_offset
    cdef readonly int64_t append_time
    cdef readonly object error
    cdef readonly tuple parts
    cdef readonly object callbacks
    cdef readonly object wait_for
    # Guards the fields below, and settling. Nothing is allocated that the garbage collector sees
    # while it is held: a collection may run a finalizer, which may send a record, and come back.
    cdef RecordLock _lock
    cdef object _expedite
    cdef list _waiters
    cdef list _due                      # waiters taken by the thread that notifies them
    cdef dict _tasks
    cdef object _latch
    cdef bint _notified                     # the waiters were handed over
    cdef bint _notifying                  # a thread hands the waiters over
    cdef BatchOutcome _whole

    cdef bint _settle(
        self, int64_t base_offset, int64_t append_time, object error, tuple parts
    ) except -1
    cdef int _notify_all(self) except -1
    cdef int _call_waiters(self) except -1
    cdef int _end_notifying(self) except -1
    cdef int _open_latch(self) except -1
    cdef BatchOutcome part_of(self, Py_ssize_t* index)


@cython.no_gc           # refers to its batch's outcome, which releases its waiters when it ends
cdef class FutureRecordMetadata:
    cdef readonly object delivery       # the first: see KprodFutureHead
    cdef readonly int64_t timestamp
    cdef readonly int32_t index
    cdef readonly int32_t key_size
    cdef readonly int32_t value_size
    cdef readonly int32_t header_size


cdef BatchOutcome outcome_of(FutureRecordMetadata future)
cdef object metadata_of(FutureRecordMetadata future)

cdef extern from *:
    """
    /* What every FutureRecordMetadata begins with. */
    typedef struct {
        PyObject_HEAD
        PyObject *delivery;
    } KprodFutureHead;

    /* All fields are the caller's to set. */
    static inline PyObject *kprod_new_future(PyTypeObject *kind) {
        KprodFutureHead *made = PyObject_New(KprodFutureHead, kind);
        if (made != NULL) {
            made->delivery = NULL;      /* not None: each record would change its count twice */
        }
        return (PyObject *)made;
    }

    static inline void kprod_give_delivery(PyObject *future, void *delivery) {
        Py_INCREF((PyObject *)delivery);
        ((KprodFutureHead *)future)->delivery = (PyObject *)delivery;
    }
    """
    object kprod_new_future(type kind)
    void give_delivery "kprod_give_delivery" (object future, void* delivery) noexcept


cdef inline FutureRecordMetadata new_future():
    """A future without ``__init__``, with all fields to be set, or it is dropped."""
    return <FutureRecordMetadata>kprod_new_future(FutureRecordMetadata)
