cimport cython

from kprod.sender.connection cimport BrokerConnection


cdef class BrokerLink:
    cdef readonly object broker
    cdef readonly object transport
    cdef object _on_failure
    cdef object _troubles
    cdef object _tended
    cdef object _backend
    cdef object _settings
    cdef object _metrics
    cdef object _traffic
    cdef BrokerConnection _connection
    cdef object _changing
    cdef bint _waits_to_write
    cdef bint _takes_batches
    cdef double _setup_began
    cdef double _setup_limit
    cdef long _setups_too_long
    cdef bint _coming_up
    cdef double _last_active
    cdef long _failures
    cdef double _retry_at
    cdef double _idle_lost_at
    cdef object _latest_failure
    cdef object _broken

    cpdef bint usable(self, double now) except -1
    cpdef bint idle_bootstrap(self, double now) except -1
    cpdef bint may_connect(self, double now) except -1

    @cython.locals(limit=double, silent=double)
    cpdef double next_event(self, double now) except? -1
    cdef double _deadline(self) except? -1
    cpdef void becomes(self, object broker) except *
    cpdef void connect(self, double now) except *
    cpdef void send(self, object exchange, double now) except *
    cpdef void moved(self, double now, bint readable, bint writable) except *
    cdef void _advance(self, double now) except *
    cpdef void tend(self, double now) except *

    @cython.locals(connection=BrokerConnection, silence=double)
    cdef void _read(self, double now) except *
    cdef void _write(self, double now) except *

    @cython.locals(taken=Py_ssize_t, waits=bint)
    cdef void _write_all(self, double now) except *
    cdef Py_ssize_t _write_some(self, object transport, BrokerConnection connection) except? -1
    cpdef void check_deadlines(self, double now) except *
