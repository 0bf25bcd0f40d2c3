cdef class TcpTransport:
    cdef readonly object name
    cdef bint _resolving
    cdef object _unresolvable
    cdef list _untried
    cdef object _options
    cdef object _poller
    cdef object _address
    cdef object _sock
    cdef int _fd
    cdef object _writing
    cdef bint _connected
    cdef bint _closed
    cdef list _failures

    cpdef Py_ssize_t send(self, object buffers) except? -1
    cpdef object receive(self, Py_ssize_t limit)
