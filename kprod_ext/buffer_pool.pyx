# cython: language_level=3, auto_pickle=False, autotestdict=False
"""The memory of batches: one limit for all of it, and the threads that wait for some.

After ``org.apache.kafka.clients.producer.internals.BufferPool``, with one difference. There a
freed buffer wakes a waiter, which then tries to take it. Here a thread that frees memory assigns it
to the first waiter under the lock, and wakes the waiter only when it has all it needs. So no new
caller can overtake, and no wake-up can be lost: assigned memory is counted as the waiter's, and a
waiter that leaves early passes it to the next. While a thread waits, no memory is free.

A thread that holds the pool's lock needs no GIL and does not block, so others spin for the lock;
from Python 3.13 on they are parked. Memory is allocated outside of the lock: with tracemalloc, an
allocation needs the GIL, which a spinning thread may hold.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc, PyMem_RawRealloc

import threading

from kprod_ext.clock import monotonic
from kprod_ext.held_signals import acquire_in_rounds

from kprod_ext.process cimport Generation, current_generation, generation_mark
from kprod_ext.shared cimport release_lock, spin_for_lock

# In a forked child (another generation), a thread of the parent may have held the pool's lock.
cdef const Generation* MARK = generation_mark()

cdef double LONGEST_WAIT = threading.TIMEOUT_MAX

cdef enum:
    QUEUED
    SERVED
    CLOSED
    EXPIRED


@cython.final
@cython.no_gc
cdef class PooledBuffer:
    """Memory for one batch; a writable buffer of bytes that counts the views of it."""

    def __getbuffer__(self, Py_buffer* view, int flags):
        cdef bint usable
        if self.pool is None:
            raise BufferError("this buffer has no memory")
        spin_for_lock(&self.pool._lock)
        usable = not self.given_back and not self.moving
        if usable:
            PyBuffer_FillInfo(view, self, self.data, self.capacity, 0, flags)
            self.lent += 1
        release_lock(&self.pool._lock)
        if not usable:
            raise BufferError("this buffer was given back to its pool, or is being enlarged")

    def __releasebuffer__(self, Py_buffer* view):
        if MARK[0] != self.pool._generation:
            return
        spin_for_lock(&self.pool._lock)
        self.lent -= 1
        release_lock(&self.pool._lock)

    def __dealloc__(self):
        # A buffer can be lost between allocate() returning it and the caller storing it: a signal
        # handler that raises runs exactly there. Its bytes would be missing from the pool for ever.
        if self.data != NULL and not self.given_back:
            self.pool.give_back(<Block*>self.data, self.capacity, self.chunks, self.chunk_bytes)
        elif self.data != NULL:
            PyMem_RawFree(self.data)
            free_blocks(<Block*>self.chunks)


@cython.final
@cython.no_gc
cdef class _Part:
    """Contiguous bytes of a PooledBuffer: views of them count as views of the buffer."""

    cdef Py_buffer _lent
    cdef char* _data
    cdef Py_ssize_t _size

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self._data, self._size, True, flags)

    def __dealloc__(self):
        PyBuffer_Release(&self._lent)


cdef object view_of(PooledBuffer buffer, char* data, Py_ssize_t size):
    """A read-only view of a part of the buffer's memory, in any of its chunks."""
    cdef _Part part = _Part.__new__(_Part)
    PyObject_GetBuffer(buffer, &part._lent, PyBUF_SIMPLE)
    part._data, part._size = data, size
    return memoryview(part)


@cython.final
@cython.no_gc
cdef class _Waiter:
    pass


@cython.final
@cython.no_gc
cdef class BufferPool:
    """A limited amount of memory for batches; when it is used up, callers wait in order."""

    def __cinit__(self, Py_ssize_t total, Py_ssize_t poolable_size):
        if total <= 0:
            raise ValueError(f"total must be positive, got {total}")
        if poolable_size < 0:
            raise ValueError(f"poolable_size must not be negative, got {poolable_size}")
        self.total = total
        self.poolable_size = poolable_size
        self._unpooled = total
        self._generation = current_generation()

    def __dealloc__(self):
        free_blocks(self._free)

    cpdef PooledBuffer allocate(self, Py_ssize_t size, double timeout, object on_wait=None):
        """Take size bytes; if they are not free, call on_wait and wait up to timeout seconds."""
        cdef Block* block = NULL
        cdef Block* trash = NULL
        cdef PooledBuffer buffer = PooledBuffer.__new__(PooledBuffer)
        cdef bint closed, taken
        if size <= 0 or size > self.total:
            raise ValueError(f"cannot allocate {size} bytes from a pool of {self.total}")
        if timeout != timeout:
            raise ValueError("timeout is not a number")
        spin_for_lock(&self._lock)
        closed = self._closed
        taken = not closed and self._take(size, &block, &trash)
        release_lock(&self._lock)
        free_blocks(trash)
        if closed:
            raise RuntimeError("the pool is closed")
        if not taken:
            if timeout <= 0:
                raise TimeoutError(f"{size} bytes are not free")
            block = self._wait_for(size, timeout, on_wait)
        return self._hand_out(buffer, block, size)

    cdef PooledBuffer take(self, Py_ssize_t size):
        """Take size bytes; None if they are not free, or the pool is closed."""
        cdef Block* block = NULL
        cdef Block* trash = NULL
        cdef PooledBuffer buffer = PooledBuffer.__new__(PooledBuffer)
        cdef bint taken
        if size > self.total:
            return None
        spin_for_lock(&self._lock)
        taken = not self._closed and self._take(size, &block, &trash)
        release_lock(&self._lock)
        free_blocks(trash)
        return self._hand_out(buffer, block, size) if taken else None

    cpdef void deallocate(self, PooledBuffer buffer) except *:
        """Return a buffer's bytes, and its memory unless a view or a reader of it is left."""
        cdef Block* block = NULL
        cdef Chunk* chunks = NULL
        cdef bint first_time
        if buffer is None:
            raise TypeError("a buffer goes back, not None")
        if buffer.pool is not self:
            raise ValueError("the buffer is not from this pool")
        spin_for_lock(&self._lock)
        first_time = not buffer.given_back
        buffer.given_back = True
        if first_time and buffer.lent == 0 and buffer.readers == 0 and not buffer.moving:
            block, chunks = <Block*>buffer.data, buffer.chunks
            buffer.data = NULL
            buffer.chunks = NULL
        release_lock(&self._lock)
        if not first_time:
            raise ValueError("the buffer was given back before")
        self.give_back(block, buffer.capacity, chunks, buffer.chunk_bytes)

    def close(self):
        """Refuse allocations from now on, including waiting ones. Buffers may still be returned."""
        cdef _Waiter waiter
        cdef _Waiter first
        spin_for_lock(&self._lock)
        self._closed = True
        first = self._first
        self._first = self._last = None
        self._waiting = 0
        waiter = first
        while waiter is not None:
            waiter.state = CLOSED
            self._unpooled += waiter.held
            waiter = waiter.next
        release_lock(&self._lock)
        ring(first)

    @property
    def available(self):
        cdef Py_ssize_t free
        spin_for_lock(&self._lock)
        free = self._unpooled + self._free_bytes
        release_lock(&self._lock)
        return free

    @property
    def waiting(self):
        cdef Py_ssize_t threads
        spin_for_lock(&self._lock)
        threads = self._waiting
        release_lock(&self._lock)
        return threads

    @property
    def waited(self):
        cdef double seconds
        spin_for_lock(&self._lock)
        seconds = self._waited
        release_lock(&self._lock)
        return seconds

    @property
    def closed(self):
        cdef bint closed
        spin_for_lock(&self._lock)
        closed = self._closed
        release_lock(&self._lock)
        return closed

    cdef PooledBuffer _hand_out(self, PooledBuffer buffer, Block* block, Py_ssize_t size):
        if block == NULL:
            block = <Block*>PyMem_RawMalloc(max(<size_t>size, sizeof(Block)))
        if block == NULL:
            self.give_back(NULL, size, NULL, 0)
            raise MemoryError(f"the system has no {size} bytes")
        buffer.pool = self
        buffer.data = <char*>block
        buffer.capacity = size
        return buffer

    cdef void give_back(
        self, Block* block, Py_ssize_t size, Chunk* chunks, Py_ssize_t chunk_bytes
    ) noexcept:
        """Count a buffer's bytes as free again; NULL where it had no memory."""
        cdef Block* trash = NULL
        cdef Chunk* chunk
        cdef _Waiter served
        if MARK[0] != self._generation:
            return
        spin_for_lock(&self._lock)
        self._keep(block, size, &trash)
        if chunks == NULL:
            self._unpooled += chunk_bytes
        while chunks != NULL:
            chunk = chunks
            chunks = chunk.next
            self._keep(<Block*>chunk, chunk.size, &trash)
        served = self._serve(&trash)
        release_lock(&self._lock)
        free_blocks(trash)
        ring(served)

    cdef void _keep(self, Block* block, Py_ssize_t size, Block** trash) noexcept nogil:
        if block != NULL:
            kprod_poison(block, size)
        if block != NULL and size == self.poolable_size:
            block.next = self._free
            self._free = block
            self._free_bytes += size
        else:
            self._unpooled += size
            if block != NULL:
                block.next = trash[0]
                trash[0] = block

    cdef Block* _wait_for(self, Py_ssize_t size, double timeout, object on_wait) except? NULL:
        """Wait in the queue; return a pooled block, or NULL for bytes without a block."""
        cdef Block* trash = NULL
        cdef _Waiter served = None
        cdef _Waiter waiter = _Waiter.__new__(_Waiter)
        cdef bint closed
        cdef double began, seconds
        waiter.need = size
        try:
            waiter.bell = threading.Lock()
        except RuntimeError as error:   # as Python calls it
            raise MemoryError("no memory to wait for memory") from error
        waiter.bell.acquire()
        began = monotonic()             # first: a waiter in the queue leaves it, whatever fails
        spin_for_lock(&self._lock)
        # close() may have emptied the queue since allocate() checked: nothing would wake this one.
        closed = self._closed
        if not closed:
            self._enqueue(waiter)
            served = self._serve(&trash)
        release_lock(&self._lock)
        free_blocks(trash)
        if closed:
            raise RuntimeError("the pool is closed")
        try:
            ring(served)
            if on_wait is not None:
                on_wait()
            acquire_in_rounds(waiter.bell, min(timeout, LONGEST_WAIT))
            seconds = <double>monotonic() - began
        except BaseException:
            # A signal handler raised, or memory ran out. The waiter may have been served just
            # before: then it owns memory, which is returned like that of a waiter in the queue.
            self._withdraw(waiter, 0)
            if waiter.state == SERVED:
                self.give_back(waiter.block, size, NULL, 0)
            raise
        self._withdraw(waiter, seconds)
        if waiter.state == CLOSED:
            raise RuntimeError("the pool was closed")
        if waiter.state == EXPIRED:
            raise TimeoutError(f"no {size} bytes became free within {timeout:g} s")
        return waiter.block

    cdef void _withdraw(self, _Waiter waiter, double seconds) noexcept:
        """End a wait: a thread that was not served leaves the queue and passes its memory on."""
        cdef Block* trash = NULL
        cdef _Waiter served = None
        spin_for_lock(&self._lock)
        self._waited += seconds
        if waiter.state == QUEUED:
            self._unlink(waiter)
            waiter.state = EXPIRED
            self._unpooled += waiter.held
            served = self._serve(&trash)
        release_lock(&self._lock)
        free_blocks(trash)
        ring(served)

    cdef bint can_grow(self, PooledBuffer buffer, Py_ssize_t capacity) noexcept:
        """Whether try_grow would succeed now."""
        cdef bint fits
        spin_for_lock(&self._lock)
        fits = (
            buffer.lent == 0
            and capacity - buffer.capacity <= self._unpooled + self._free_bytes
        )
        release_lock(&self._lock)
        return fits

    cdef bint try_grow(
        self, PooledBuffer buffer, Py_ssize_t capacity, Py_ssize_t left
    ) noexcept nogil:
        """Grow the buffer, with its content, if at least `left` bytes of the pool stay free. Never
        waits, nor overtakes a waiter."""
        cdef Block* trash = NULL
        cdef void* moved
        cdef bint fits
        cdef Py_ssize_t extra = capacity - buffer.capacity
        spin_for_lock(&self._lock)
        fits = (
            not buffer.given_back
            and not buffer.moving
            and buffer.lent == 0
            and extra + left <= self._unpooled + self._free_bytes
        )
        if fits:
            self._unpool(extra, &trash)
            self._unpooled -= extra
            buffer.moving = True        # no view of the old memory is taken from now on
        release_lock(&self._lock)
        free_blocks(trash)
        if not fits:
            return False
        moved = PyMem_RawRealloc(buffer.data, <size_t>capacity)
        spin_for_lock(&self._lock)
        buffer.moving = False
        if moved != NULL:
            buffer.data = <char*>moved
            buffer.capacity = capacity
        release_lock(&self._lock)
        if moved == NULL:
            self.refund(extra)
        return moved != NULL

    cdef void refund(self, Py_ssize_t size) noexcept nogil:
        """Count bytes as free again for which the system had no memory."""
        with gil:
            self.give_back(NULL, size, NULL, 0)

    cdef void shrink(self, PooledBuffer buffer, Py_ssize_t capacity) noexcept:
        """Cut a grown buffer of this pool down and hand its excess to waiting threads."""
        cdef Block* trash = NULL
        cdef _Waiter served = None
        cdef void* moved
        spin_for_lock(&self._lock)
        if not buffer.given_back and buffer.lent == 0 and capacity < buffer.capacity:
            # Under the lock: this thread has the GIL, so it does not block here.
            moved = PyMem_RawRealloc(buffer.data, max(<size_t>capacity, sizeof(Block)))
            if moved != NULL:
                self._unpooled += buffer.capacity - capacity
                buffer.data = <char*>moved
                buffer.capacity = capacity
                served = self._serve(&trash)
        release_lock(&self._lock)
        free_blocks(trash)
        ring(served)

    cdef bint _take(self, Py_ssize_t size, Block** block, Block** trash) noexcept:
        """Take size bytes if they are free; block stays NULL when they have no memory yet."""
        if size == self.poolable_size and self._free != NULL:
            block[0] = self._pop_free()
            return True
        if size > self._unpooled + self._free_bytes:
            return False
        self._unpool(size, trash)
        self._unpooled -= size
        return True

    cdef Block* _pop_free(self) noexcept nogil:
        cdef Block* block = self._free
        self._free = block.next
        self._free_bytes -= self.poolable_size
        return block

    cdef void _unpool(self, Py_ssize_t wanted, Block** trash) noexcept nogil:
        """Give up pooled blocks until wanted bytes are unpooled or none is left."""
        cdef Block* block
        while self._unpooled < wanted and self._free != NULL:
            block = self._pop_free()
            self._unpooled += self.poolable_size
            block.next = trash[0]
            trash[0] = block

    cdef _Waiter _serve(self, Block** trash):
        """Assign free memory to waiters in order; return those that have enough, for ring()."""
        cdef _Waiter served = None
        cdef _Waiter waiter
        while self._first is not None and self._feed(self._first, trash):
            waiter = self._first
            self._unlink(waiter)
            waiter.state = SERVED
            waiter.next = served
            served = waiter
        return served

    cdef bint _feed(self, _Waiter waiter, Block** trash) noexcept:
        cdef Py_ssize_t part
        if waiter.need == self.poolable_size and self._free != NULL:
            waiter.block = self._pop_free()
            self._unpooled += waiter.held
            waiter.held = waiter.need
            return True
        self._unpool(waiter.need - waiter.held, trash)
        part = min(self._unpooled, waiter.need - waiter.held)
        self._unpooled -= part
        waiter.held += part
        return waiter.held == waiter.need

    cdef int _enqueue(self, _Waiter waiter) except -1:
        if self._first is None:
            self._first = waiter
        else:
            self._last.next = waiter
        self._last = waiter
        self._waiting += 1
        return 0

    cdef int _unlink(self, _Waiter waiter) except -1:
        # No object dies here: the waiting thread holds its waiter until it has seen the change.
        cdef _Waiter before
        if self._first is waiter:
            self._first = waiter.next
            before = None
        else:
            before = self._first
            while before.next is not waiter:
                before = before.next
            before.next = waiter.next
        if self._last is waiter:
            self._last = before
        waiter.next = None
        self._waiting -= 1
        return 0


cdef int ring(_Waiter waiter) except -1:
    """Wake the threads of a chain of waiters. Not under the lock: this calls into Python."""
    while waiter is not None:
        waiter.bell.release()
        waiter = waiter.next
    return 0
