# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Waiting for file descriptors, and I/O on non-blocking sockets."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals, PyErr_SetFromErrno
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc

from kprod_ext.held_signals cimport ROUND, handles_signals
from kprod_ext.process cimport (
    Descriptor,
    Generation,
    current_generation,
    generation_mark,
    thread_sleeps,
    thread_wakes,
)
from kprod_ext.shared cimport RecordLock, release_lock, take_lock

# Waiting for file descriptors, at first by spinning if the caller wants that.
#
# If its core was idle, the kernel wakes a sleeping thread some 50 us after the event; a broker
# nearby answers in less time. So a caller may spin for a while before it sleeps. Brokers that are
# not as near are not spun for again and again: spins in vain are followed by 0, 2, 6, 14 ... up to
# 254 waits that sleep at once. One that found something ends that.
#
# poll(2) suits the few connections of a producer: a change of interest needs no system call, and a
# forked child shares no kernel object with its parent.

cdef extern from *:
    """
    #include <fcntl.h>
    #include <limits.h>
    #include <time.h>
    #include <poll.h>
    #include <string.h>
    #include <unistd.h>
    #if defined(__linux__) && !defined(KPROD_PORTABLE)
    #include <sys/eventfd.h>
    static int kprod_open_bell(int ends[2]) {
        ends[0] = ends[1] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        return ends[0] < 0 ? -1 : 0;
    }
    /* poll(2) counts milliseconds, and a moment may be shorter; -1 is without limit. */
    static int kprod_poll_for(struct pollfd *places, nfds_t count, long long nanoseconds) {
        struct timespec limit = {nanoseconds / 1000000000, nanoseconds % 1000000000};
        return ppoll(places, count, nanoseconds < 0 ? NULL : &limit, NULL);
    }
    #else  /* what POSIX has; macOS, for one, has neither eventfd nor ppoll */
    static int kprod_open_bell(int ends[2]) {
        int end;
        if (pipe(ends) < 0) return -1;
        for (end = 0; end < 2; end++) {
            fcntl(ends[end], F_SETFL, O_NONBLOCK);
            fcntl(ends[end], F_SETFD, FD_CLOEXEC);
        }
        return 0;
    }
    /* A moment is rounded up to a millisecond: the caller looks at the clock afterwards. */
    static int kprod_poll_for(struct pollfd *places, nfds_t count, long long nanoseconds) {
        long long milliseconds = nanoseconds < 0 ? -1 : (nanoseconds + 999999) / 1000000;
        return poll(places, count, milliseconds > INT_MAX ? INT_MAX : (int)milliseconds);
    }
    #endif
    /* What an eventfd takes and gives; to a pipe just eight bytes. */
    static void kprod_ring_bell(int fd) {
        unsigned long long one = 1;
        if (write(fd, &one, sizeof one) < 0) { /* it is full: then it rings already */ }
    }
    static void kprod_still_bell(int fd) {
        unsigned long long count;
        if (read(fd, &count, sizeof count) < 0) { /* it was still */ }
    }
    /* Of the clock that never jumps. */
    static long long kprod_nanoseconds(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return (long long)now.tv_sec * 1000000000 + now.tv_nsec;
    }
    #define kprod_load(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)
    #define kprod_store(place, value) __atomic_store_n(&(place), (value), __ATOMIC_SEQ_CST)
    #define kprod_swap(place, value) __atomic_exchange_n(&(place), (value), __ATOMIC_SEQ_CST)
    """
    struct pollfd:
        int fd
        short events
        short revents
    long long kprod_nanoseconds() noexcept nogil
    short POLLIN
    short POLLOUT
    int poll(pollfd *places, unsigned long count, int milliseconds) noexcept nogil
    int kprod_poll_for(pollfd *places, unsigned long count, long long nanoseconds) noexcept nogil
    int kprod_open_bell(int *ends) noexcept
    void kprod_ring_bell(int fd) noexcept
    void kprod_still_bell(int fd) noexcept
    int kprod_load(int place) noexcept nogil
    void kprod_store(int place, int value) noexcept nogil
    int kprod_swap(int place, int value) noexcept nogil

cdef const Generation* MARK = generation_mark()
cdef double SECOND = 1e9
cdef long long FOREVER = 0x7FFFFFFFFFFFFFFF
cdef double LONGEST = 1e6  # seconds, of one system call; a longer wait is several
cdef int MOST_IN_VAIN = 8


@cython.final
cdef class Poller:
    """See the stub."""

    cdef pollfd *_places    # the first is the bell's
    cdef int _count
    cdef int _room
    cdef list _data         # one for each place, and None behind those that are left
    cdef Descriptor _bell       # the ends of the bell: the same one where it is an eventfd
    cdef Descriptor _rung
    cdef RecordLock _lock       # taken to ring the bell or to give it back
    cdef bint _closed
    cdef Generation _generation
    cdef int _woken         # since the last wait ended
    cdef int _asleep        # or about to be: ``wake`` must ring
    cdef int _in_vain       # spins one after the other that found nothing
    cdef int _skips         # waits until the next spin

    def __cinit__(self):
        cdef int[2] ends
        self._closed = True
        self._generation = current_generation()
        self._data = [None]
        self._make_room()
        if kprod_open_bell(ends) < 0:
            PyErr_SetFromErrno(OSError)
        self._bell = Descriptor(ends[0])
        self._rung = self._bell if ends[1] == ends[0] else Descriptor(ends[1])
        self._closed = False
        self._places[0].fd = ends[0]
        self._places[0].events = POLLIN
        self._count = 1

    def __dealloc__(self):
        PyMem_Free(self._places)

    cdef int _make_room(self) except -1:
        cdef int room = 2 * self._room + 4
        cdef pollfd *places = <pollfd *>PyMem_Realloc(self._places, room * sizeof(pollfd))
        if places == NULL:
            raise MemoryError()
        self._places = places
        self._room = room
        return 0

    cdef int _place_of(self, int fd) noexcept:
        """The place of ``fd``, or the one behind the last, by a linear search as in poll(2)."""
        cdef int place = 1
        while place < self._count and self._places[place].fd != fd:
            place += 1
        return place

    def watch(self, int fd, data, bint write, /):
        """Watch ``fd`` for reading, and for writing if ``write``, from now on; report ``data``."""
        cdef int place = self._place_of(fd)
        if place == self._room:
            self._make_room()
        if place == self._count:
            if place == len(self._data):
                self._data.append(None)
            self._count += 1
        self._data[place] = data
        self._places[place].fd = fd
        self._places[place].events = POLLIN | POLLOUT if write else POLLIN

    def forget(self, int fd, /):
        """Stop watching ``fd``. Idempotent."""
        cdef int place = self._place_of(fd)
        if place == self._count:
            return
        self._count -= 1
        self._places[place] = self._places[self._count]
        self._data[place] = self._data[self._count]
        self._data[self._count] = None  # pop may need memory, and closing a connection must not

    def watched(self):
        """The data of every descriptor that is watched."""
        return self._data[1 : self._count]

    def wait(self, timeout, double eager=0.0, /):
        """Wait at most ``timeout`` seconds (None: no limit) for a descriptor or ``wake``."""
        cdef long long until = FOREVER
        cdef double seconds = LONGEST if timeout is None else timeout
        cdef int ready
        seconds = min(max(seconds, 0.0), LONGEST)
        if self._closed:
            raise ValueError("the poller is closed")
        if MARK[0] != self._generation:
            raise ValueError("the poller belongs to the process that this one was forked from")
        # First a check that keeps the GIL, which may take long to reacquire: often data is ready.
        ready = poll(self._places, <unsigned long>self._count, 0)
        if ready < 0 and errno == EINTR:
            ready = 0
        if ready == 0 and seconds > 0 and not kprod_load(self._woken):
            if timeout is not None:
                until = kprod_nanoseconds() + <long long>(seconds * SECOND)
            ready = self._wait_until(until, <long long>(min(eager, seconds) * SECOND))
        kprod_store(self._woken, 0)
        if ready < 0:
            PyErr_SetFromErrno(OSError)
        return self._found() if ready > 0 else []

    cdef int _wait_until(self, long long until, long long eager) except? -1:
        cdef int ready = 0
        if eager > 0 and self._skips > 0:
            self._skips -= 1
        elif eager > 0:
            ready = self._look_for(eager)
            if ready:
                self._in_vain = 0
            elif not kprod_load(self._woken):
                self._in_vain = min(self._in_vain + 1, MOST_IN_VAIN)
                self._skips = (1 << self._in_vain) - 2
            if ready == 0:
                PyErr_CheckSignals()    # a signal during the check does not end the sleep
        if ready == 0 and not kprod_load(self._woken):
            ready = self._sleep_until(until)
        return ready

    cdef int _look_for(self, long long eager) noexcept:
        """Poll without sleeping; empty if woken, or when the time is over."""
        cdef long long began = kprod_nanoseconds()
        cdef int ready = 0
        with nogil:
            while ready == 0 and not kprod_load(self._woken):
                if kprod_nanoseconds() - began >= eager:
                    break
                ready = poll(self._places, <unsigned long>self._count, 0)
        return 0 if ready < 0 and errno == EINTR else ready

    cdef int _sleep_until(self, long long until) except? -1:
        cdef int ready = 0
        cdef long long left
        cdef bint in_rounds = handles_signals()
        while ready == 0:
            left = FOREVER if until == FOREVER else max(until - kprod_nanoseconds(), 0)
            if in_rounds:
                left = min(left, ROUND)
            # Store this first, then check whether wake() was called; wake() does the reverse.
            # SEQ_CST: of two threads that each store and then load the other's value, one must see
            # the store. With release and acquire both may miss it, and the wait would not end.
            kprod_store(self._asleep, 1)
            if kprod_load(self._woken):
                left = 0
            with nogil:
                thread_sleeps()
                ready = kprod_poll_for(
                    self._places, <unsigned long>self._count, -1 if left == FOREVER else left
                )
                thread_wakes()
            kprod_store(self._asleep, 0)
            if ready < 0 and errno == EINTR:
                ready = 0
            if ready == 0:
                PyErr_CheckSignals()
            if kprod_load(self._woken) or (until != FOREVER and kprod_nanoseconds() >= until):
                break
        return ready

    cdef list _found(self):
        cdef list found = []
        cdef int number
        cdef short events
        if self._places[0].revents:
            kprod_still_bell(self._bell.fd)
        for number in range(1, self._count):
            events = self._places[number].revents
            if events:
                writable = events & ~POLLIN and self._places[number].events & POLLOUT
                found.append((self._data[number], bool(events & ~POLLOUT), bool(writable)))
        return found

    def wake(self):
        """End the current wait, or the next one. Any thread, at any time, even after ``close``."""
        if MARK[0] != self._generation:     # a thread of the parent may have held the lock
            return
        # Locked: close() must not close the descriptor between the check of _asleep and the write,
        # because its number may then belong to a file of the application.
        take_lock(&self._lock)
        if not self._closed and not kprod_swap(self._woken, 1) and kprod_load(self._asleep):
            kprod_ring_bell(self._rung.fd)
        release_lock(&self._lock)

    def close(self):
        """Close the poller's own descriptors. Idempotent."""
        if MARK[0] == self._generation:
            take_lock(&self._lock)
            self._closed = True
            self._bell.close()
            self._rung.close()
            release_lock(&self._lock)
        self._data = [None]
        self._count = 1


# Moving bytes through a socket that does not block, with one system call and few steps.
#
# A small call keeps the GIL: the call takes a microsecond, and taking the GIL back from a thread
# that computes may take milliseconds. A large call releases it.

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
        /* No signal: the program we are embedded in may want its SIGPIPE for itself. Where there is
           no such flag, an option of the socket says the same (kprod/transport/tcp.py). */
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
    SMALL = 64 * 1024  # bytes; copying them takes less time than another thread may hold the GIL


def send_buffers(int fd, buffers, /):
    """Send the buffers in order, at most IOV_MAX of them; return the bytes sent, perhaps 0."""
    cdef tuple pieces = tuple(buffers)      # which keeps them alive
    cdef int count = <int>min(len(pieces), IOV_MAX)
    cdef Py_buffer few[FEW]
    cdef iovec few_places[FEW]
    cdef Py_buffer *views = few
    cdef iovec *places = few_places
    cdef void *many = NULL
    cdef int number = 0
    if count > FEW:
        many = malloc(count * (sizeof(Py_buffer) + sizeof(iovec)))
        if many == NULL:
            raise MemoryError()
        views = <Py_buffer *>many
        places = <iovec *>(views + count)
    try:
        while number < count:
            PyObject_GetBuffer(pieces[number], &views[number], PyBUF_SIMPLE)
            places[number].iov_base = views[number].buf
            places[number].iov_len = <size_t>views[number].len
            number += 1
        return _send(fd, places, count)
    finally:
        while number > 0:
            number -= 1
            PyBuffer_Release(&views[number])
        free(many)


cdef Py_ssize_t _send(int fd, iovec *places, int count) except -1:
    cdef size_t size = 0
    cdef Py_ssize_t taken
    cdef int number
    for number in range(count):
        size += places[number].iov_len
    while True:
        if size <= SMALL:
            taken = kprod_sendmsg(fd, places, count)
        else:
            with nogil:
                taken = kprod_sendmsg(fd, places, count)
        if taken >= 0:
            return taken
        if errno == EAGAIN:
            return 0
        _go_on()


def receive(int fd, Py_ssize_t limit, /):
    """Receive at most ``limit`` bytes; None if there are none yet, b"" if the peer has closed."""
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
