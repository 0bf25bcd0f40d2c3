cimport cython

from kprod_ext.memory_block cimport Block, Chunk


@cython.final
@cython.no_gc           # refers to a BufferPool only, so it is in no cycle
cdef class PooledBuffer:
    cdef BufferPool pool
    cdef char* data                     # NULL when the pool has taken the memory back
    cdef readonly Py_ssize_t capacity   # bytes at data, and bytes the pool has counted for it
    cdef Chunk* chunks                  # further memory, in order; who holds the buffer adds some
    cdef Chunk* last_chunk              # NULL: there is none, as in `chunks`
    cdef readonly Py_ssize_t chunk_bytes    # bytes the pool has counted for them
    cdef readonly Py_ssize_t lent       # views out; guarded by the pool's lock
    cdef bint given_back                # guarded by the pool's lock


@cython.final
@cython.no_gc           # refers to waiters, a waiter to a lock: no cycle
cdef class BufferPool:
    cdef readonly Py_ssize_t total
    cdef readonly Py_ssize_t poolable_size

    cdef cython.pymutex _lock           # guards all below; no Python code runs under it
    cdef Py_ssize_t _unpooled           # bytes neither in use nor in the free list
    cdef Block* _free                   # blocks of poolable_size bytes
    cdef Py_ssize_t _free_bytes
    cdef _Waiter _first                 # waiters, longest waiting first
    cdef _Waiter _last
    cdef Py_ssize_t _waiting
    cdef double _waited
    cdef bint _closed

    cpdef PooledBuffer allocate(self, Py_ssize_t size, double timeout, object on_wait=*)
    cpdef void deallocate(self, PooledBuffer buffer) except *

    cdef bint try_grow(
        self, PooledBuffer buffer, Py_ssize_t capacity, Py_ssize_t left
    ) noexcept nogil
    cdef bint can_grow(self, PooledBuffer buffer, Py_ssize_t capacity) noexcept
    cdef void shrink(self, PooledBuffer buffer, Py_ssize_t capacity) noexcept
    cdef void give_back(
        self, Block* block, Py_ssize_t size, Chunk* chunks, Py_ssize_t chunk_bytes
    ) noexcept

    cdef PooledBuffer _hand_out(self, PooledBuffer buffer, Block* block, Py_ssize_t size)
    cdef Block* _wait_for(self, Py_ssize_t size, double timeout, object on_wait) except? NULL
    cdef void _withdraw(self, _Waiter waiter, double seconds) noexcept

    # The caller of the following holds the lock.
    cdef bint _take(self, Py_ssize_t size, Block** block, Block** trash) noexcept
    cdef Block* _pop_free(self) noexcept nogil
    cdef void _keep(self, Block* block, Py_ssize_t size, Block** trash) noexcept nogil
    cdef void _unpool(self, Py_ssize_t wanted, Block** trash) noexcept nogil
    cdef bint _feed(self, _Waiter waiter, Block** trash) noexcept
    cdef _Waiter _serve(self, Block** trash)
    cdef int _enqueue(self, _Waiter waiter) except -1
    cdef int _unlink(self, _Waiter waiter) except -1


@cython.final
@cython.no_gc
cdef class _Waiter:
    # A thread in allocate(), waiting. Fields are guarded by the pool's lock.
    cdef object bell                    # threading.Lock, held until the state has changed
    cdef int state
    cdef Py_ssize_t need
    cdef Py_ssize_t held                # bytes of need it already has
    cdef Block* block                   # or a whole pooled block
    cdef _Waiter next
