cimport cython

from kprod.wire.framing cimport FrameReader


cdef class _Unanswered:
    cdef readonly object exchange
    cdef readonly int version
    cdef readonly object correlation_id
    cdef public double since
    cdef public object left
    cdef public Py_ssize_t left_bytes
    cdef public bint started

    cpdef void took(self, Py_ssize_t nbytes) except *


cdef class _Output:
    cdef object _owners

    cpdef void add(self, _Unanswered owner) except *

    @cython.locals(owner=_Unanswered)
    cpdef object pending(self)

    @cython.locals(owner=_Unanswered, finished=list)
    cpdef list wrote(self, Py_ssize_t nbytes, double now)
    cpdef void clear(self) except *


cdef class BrokerConnection:
    cdef object _client_id
    cdef object _needed
    cdef object _on_versions
    cdef Py_ssize_t _max_in_flight
    cdef Py_ssize_t _max_frame_bytes
    cdef object _login
    cdef FrameReader _frames
    cdef object _versions
    cdef object _unanswered
    cdef _Output _output
    cdef object _next_correlation_id
    cdef double _throttled_until
    cdef bint _useful
    cdef bint _closed
    cdef readonly long responses

    cpdef bint can_send(self, double now) except -1
    cpdef void tend_login(self, double now) except *
    cpdef double login_due_in(self, double now) except? -1
    cpdef double throttled_for(self, double now) except? -1
    cpdef Py_ssize_t send(self, object exchange, double now) except -1

    @cython.locals(entry=_Unanswered)
    cdef Py_ssize_t _enqueue(self, object exchange, int version, double now) except -1
    cpdef object pending_output(self)

    @cython.locals(entry=_Unanswered)
    cpdef void wrote(self, Py_ssize_t nbytes, double now) except *
    cpdef void received(self, object chunk, double now) except *

    @cython.locals(entry=_Unanswered)
    cdef void _match(self, object frame, double now) except *

    @cython.locals(entry=_Unanswered)
    cdef void _be_silent(self, double seconds, double now) except *
    cdef object _tell(self, _Unanswered entry, object body, double now)

    @cython.locals(entry=_Unanswered)
    cpdef object waiting_since(self)

    @cython.locals(entry=_Unanswered)
    cpdef void close(self, object error, double now) except *
