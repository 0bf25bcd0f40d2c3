# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Moving bytes through a socket that does not block, with one system call and few steps.

A small call holds the interpreter: to take it back from a thread that computes may need
milliseconds, and the call itself a microsecond. A large one does not, and makes the checksums of
the batches it sends on the way.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc

from kprod_ext.sealed_batch cimport SealedBatch, SealedPiece

cdef extern from *:
    """
    #include <limits.h>
    #include <string.h>
    #include <sys/socket.h>
    #include <sys/uio.h>
    #ifndef IOV_MAX
    #define IOV_MAX 16  /* what POSIX promises */
    #endif
    #ifndef MSG_NOSIGNAL
    #define MSG_NOSIGNAL 0
    #endif
    #if EWOULDBLOCK != EAGAIN
    #error "this code takes them for the same"
    #endif
    static Py_ssize_t kprod_sendmsg(int fd, struct iovec *pieces, int count) {
        struct msghdr message;
        memset(&message, 0, sizeof message);
        message.msg_iov = pieces;
        message.msg_iovlen = count;
        /* No signal: the program we are embedded in may want its SIGPIPE for itself. */
        return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    """
    struct iovec:
        void *iov_base
        size_t iov_len
    int IOV_MAX
    int MSG_DONTWAIT
    Py_ssize_t kprod_sendmsg(int fd, iovec *pieces, int count) noexcept nogil
    Py_ssize_t recv(int fd, void *place, size_t size, int flags) noexcept nogil

cdef enum:
    FEW = 32
    SMALL = 64 * 1024  # bytes that are copied in less time than others may take the interpreter for


cdef struct Held:
    void *batch             # of a piece that is a SealedBatch or part of one, else NULL
    Py_buffer view          # of another piece


def send_buffers(int fd, buffers, /):
    """Send the buffers in order, at most IOV_MAX of them; how many bytes were taken, maybe 0."""
    cdef tuple pieces = tuple(buffers)      # which keeps them alive
    cdef int count = <int>min(len(pieces), IOV_MAX)
    cdef Held few[FEW]
    cdef iovec few_places[FEW]
    cdef Held *held = few
    cdef iovec *places = few_places
    cdef void *many = NULL
    cdef int number = 0
    if count > FEW:
        many = malloc(count * (sizeof(Held) + sizeof(iovec)))
        if many == NULL:
            raise MemoryError()
        held = <Held *>many
        places = <iovec *>(held + count)
    try:
        while number < count:
            _hold(pieces[number], &held[number], &places[number])
            number += 1
        return _send(fd, held, places, count)
    finally:
        while number > 0:
            number -= 1
            if held[number].batch == NULL:
                PyBuffer_Release(&held[number].view)
        free(many)


cdef int _hold(object piece, Held *held, iovec *place) except -1:
    cdef SealedBatch batch
    cdef SealedPiece part
    held.batch = NULL
    if type(piece) is SealedBatch:          # a view of it would want its checksum now
        batch = piece
        if batch.data() != NULL:
            held.batch = <void *>batch
            place.iov_base, place.iov_len = batch.data(), <size_t>batch.size
            return 0
    elif type(piece) is SealedPiece:        # likewise
        part = piece
        held.batch = <void *>part.batch
        place.iov_base, place.iov_len = part.data, <size_t>part.size
        return 0
    PyObject_GetBuffer(piece, &held.view, PyBUF_SIMPLE)
    place.iov_base, place.iov_len = held.view.buf, <size_t>held.view.len
    return 0


cdef Py_ssize_t _send(int fd, Held *held, iovec *places, int count) except -1:
    cdef size_t size = 0
    cdef Py_ssize_t taken
    cdef int number
    for number in range(count):
        size += places[number].iov_len
    while True:
        if size <= SMALL:
            taken = _finish_and_send(fd, held, places, count)
        else:
            with nogil:
                taken = _finish_and_send(fd, held, places, count)
        if taken >= 0:
            return taken
        if errno == EAGAIN:
            return 0
        _go_on()


cdef Py_ssize_t _finish_and_send(int fd, Held *held, iovec *places, int count) noexcept nogil:
    cdef int number
    for number in range(count):
        if held[number].batch != NULL:
            (<SealedBatch>held[number].batch).finish()
    return kprod_sendmsg(fd, places, count)


def receive(int fd, Py_ssize_t limit, /):
    """At most ``limit`` bytes; None when there is nothing now, b"" when the peer has closed."""
    cdef Py_ssize_t size
    cdef bytes room = PyBytes_FromStringAndSize(NULL, limit)
    while True:
        size = recv(fd, PyBytes_AS_STRING(room), <size_t>limit, MSG_DONTWAIT)
        if size >= 0:
            return room[:size] if size < limit else room
        if errno == EAGAIN:
            return None
        _go_on()


cdef int _go_on() except -1:
    """After a failed call: let signal handlers run if one ended it, else raise OSError."""
    if errno == EINTR:
        PyErr_CheckSignals()
    else:
        PyErr_SetFromErrno(OSError)
    return 0
