cimport cython

from kprod.sender.link cimport BrokerLink


cdef class Network:
    cdef bint _goes_back
    cdef object _backend
    cdef object _settings
    cdef object _metrics
    cdef object _clock
    cdef object _on_failure
    cdef readonly object troubles
    cdef object _rng
    cdef object _patient_until
    cdef object _adopted
    cdef dict _links
    cdef object _tended
    cdef list _leaving
    cdef public bint may_connect
    cdef public bint wants_to_connect
    cdef bint _answers_due
    cdef bint _knows_eager
    cdef double _look_at

    cdef void _add(self, object broker) except *
    cdef BrokerLink _link(self, object broker)
    cpdef void wake(self) except *
    cpdef void follow(self, object brokers) except *

    @cython.locals(link=BrokerLink)
    cpdef bint usable(self, object node_id, double now) except -1

    @cython.locals(link=BrokerLink)
    cpdef void send(self, object node_id, object exchange, double now) except *

    @cython.locals(link=BrokerLink)
    cpdef void poll(self, double timeout) except *

    @cython.locals(link=BrokerLink)
    cdef void _move(self, list ready, double now) except *
    cdef list _all_links(self)

    @cython.locals(wait=double, link=BrokerLink)
    cpdef double next_event(self, double now) except? -1
    cdef double _next_try(self, double now) except? -1
