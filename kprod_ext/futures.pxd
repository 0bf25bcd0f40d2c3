"""The fields of a record's future, and the making of one.

There is one for each record, so it has no byte that it can do without: no table of C methods (what
its subclass does are functions beside it), no header of the garbage collector, and 32 bits for what
an int32 says on the wire. Together that is 48 bytes.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t

# Which objects the garbage collector walks over, for the other compiled modules.

cpdef void track(object one) noexcept
cpdef void untrack(object one) noexcept


cdef extern from *:
    """
    /* What every RecordFuture begins with. */
    typedef struct {
        PyObject_HEAD
        PyObject *delivery;
    } KprodFutureHead;

    /* Whether there is nothing in an instance but what RecordFuture has, and nothing to be done for
       it but to allocate memory. */
    static inline int kprod_is_bare(PyTypeObject *kind, PyTypeObject *base) {
        return kind->tp_basicsize == base->tp_basicsize && kind->tp_itemsize == 0
            && kind->tp_alloc == PyType_GenericAlloc && !PyType_IS_GC(kind);
    }

    /* All fields are the caller's to set. */
    static inline PyObject *kprod_new_bare(PyTypeObject *kind) {
        KprodFutureHead *made = PyObject_New(KprodFutureHead, kind);
        if (made != NULL) {
            made->delivery = NULL;      /* not None, whose count each record would change twice */
        }
        return (PyObject *)made;
    }

    static inline void kprod_give_delivery(PyObject *future, void *delivery) {
        KprodFutureHead *head = (KprodFutureHead *)future;
        PyObject *none = head->delivery;        /* or NULL */
        Py_INCREF((PyObject *)delivery);
        head->delivery = (PyObject *)delivery;
        Py_XDECREF(none);
    }

    /* A million kept futures would be walked by every full garbage collection, and they are in no
       cycle that outlives their batch: a delivery lets go of its waiters when it ends. */
    static inline PyObject *kprod_new_instance(PyTypeObject *kind, PyObject *no_arguments) {
        PyObject *made = kind->tp_new(kind, no_arguments, NULL);
        if (made != NULL && PyObject_IS_GC(made) && PyObject_GC_IsTracked(made)) {
            PyObject_GC_UnTrack(made);
        }
        return made;
    }
    """
    bint kprod_is_bare(type kind, type base) noexcept
    object kprod_new_bare(type kind)
    object kprod_new_instance(type kind, tuple no_arguments)
    void give_delivery "kprod_give_delivery" (object future, void* delivery) noexcept


@cython.no_gc           # refers to its batch's delivery, which lets go of its waiters when it ends
cdef class RecordFuture:
    cdef readonly object delivery           # the first: see KprodFutureHead
    cdef readonly int64_t timestamp
    cdef readonly int32_t index
    cdef readonly int32_t key_size
    cdef readonly int32_t value_size
    cdef readonly int32_t header_size


cdef inline bint is_bare(type kind) noexcept:
    """Whether new_future may be told so of this subclass of RecordFuture."""
    return kprod_is_bare(kind, RecordFuture)


cdef inline RecordFuture new_future(type kind, bint bare):
    """A future of this kind without ``__init__``, with all fields to be set, or it is dropped."""
    if bare:
        return <RecordFuture>kprod_new_bare(kind)
    return <RecordFuture>kprod_new_instance(kind, ())
