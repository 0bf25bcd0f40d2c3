"""The fields of a pool and its buffers, and the chunks that enlarge a buffer without a copy.

A ``PooledBuffer`` begins with one block of memory. A batch that grows takes chunks, each as large
as the blocks that the pool keeps, or larger for a large record. The memory before a chunk does not
move: nothing is copied, and the sender sends the batch in pieces.
"""

cimport cython
from cpython.mem cimport PyMem_RawFree, PyMem_RawMalloc

from kprod_ext.process cimport Generation
from kprod_ext.shared cimport AtomicFlag, RecordLock, release_lock, spin_for_lock

# Blocks of memory as a pool keeps them, and as a buffer that grew has them: in linked lists.

cdef extern from *:
    """
    #ifdef KPROD_POISON     /* a stale pointer into free memory then reads as 0xDD */
      #include <string.h>
      #define kprod_poison(data, size) memset((data), 0xDD, (size_t)(size))
    #else
      #define kprod_poison(data, size) (void)(data)
    #endif
    """
    void kprod_poison(void* data, Py_ssize_t size) noexcept nogil


cdef struct Block:
    # The first bytes of free memory: a link, so that the free list needs no room of its own.
    Block* next


cdef struct Chunk:
    # The header of a further block of a buffer's memory; the data follows.
    Chunk* next             # the one that was added after it; first, as in a Block
    Py_ssize_t size         # bytes of the whole block, these included
    Py_ssize_t used         # bytes behind these that hold something; kept by the writer


cdef inline char* chunk_data(Chunk* chunk) noexcept nogil:
    return <char*>chunk + sizeof(Chunk)


cdef inline void free_blocks(Block* block) noexcept nogil:
    cdef Block* next_block
    while block != NULL:
        next_block = block.next
        PyMem_RawFree(block)
        block = next_block


@cython.final
@cython.no_gc           # refers to a BufferPool only, so it is in no cycle
cdef class PooledBuffer:
    cdef BufferPool pool
    cdef char* data                     # NULL when the pool has taken the memory back
    cdef readonly Py_ssize_t capacity   # bytes at data, and bytes the pool has counted for it
    cdef Chunk* chunks                  # further memory, in order; the buffer's holder adds some
    cdef Chunk* last_chunk              # NULL: none, as in `chunks`
    cdef readonly Py_ssize_t chunk_bytes    # bytes the pool has counted for them
    cdef readonly Py_ssize_t lent       # views out; guarded by the pool's lock
    cdef AtomicFlag given_back          # written under the pool's lock
    cdef bint moving                    # a thread enlarges it; guarded by the pool's lock
    # Reads of the memory without a view. Changed with the GIL, or by the sender: no lock.
    cdef Py_ssize_t readers


cdef object view_of(PooledBuffer buffer, char* data, Py_ssize_t size)


@cython.final
@cython.no_gc           # refers to waiters, a waiter to a lock: no cycle
cdef class BufferPool:
    cdef readonly Py_ssize_t total
    cdef readonly Py_ssize_t poolable_size

    cdef Generation _generation         # in a forked child no buffer takes the lock or comes back
    cdef RecordLock _lock               # guards all below; no Python code runs under it
    cdef Py_ssize_t _unpooled           # bytes neither in use nor in the free list
    cdef Block* _free                   # blocks of poolable_size bytes
    cdef Py_ssize_t _free_bytes
    cdef _Waiter _first                 # waiters, longest waiting first
    cdef _Waiter _last
    cdef Py_ssize_t _waiting
    cdef double _waited
    cdef bint _closed

    cdef PooledBuffer take(self, Py_ssize_t size)
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

    cdef void refund(self, Py_ssize_t size) noexcept nogil

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


cdef inline Py_ssize_t chunk_size(BufferPool pool, Py_ssize_t size) noexcept nogil:
    """Bytes of a chunk with room for ``size`` bytes, as the pool counts it."""
    return max(size + <Py_ssize_t>sizeof(Chunk), pool.poolable_size)


@cython.nonecheck(False)
cdef inline Chunk* add_chunk(BufferPool pool, PooledBuffer buffer, Py_ssize_t size) noexcept nogil:
    """Add a chunk for ``size`` bytes to a buffer of the pool. NULL when no memory is free now.

    Never waits, nor overtakes a waiting thread: while one waits, nothing is free. The caller is the
    only thread that uses the buffer.
    """
    cdef Block* trash = NULL
    cdef Chunk* chunk = NULL
    cdef bint counted = False
    cdef Py_ssize_t whole = chunk_size(pool, size)
    spin_for_lock(&pool._lock)
    if whole == pool.poolable_size and pool._free != NULL:
        chunk = <Chunk*>pool._pop_free()
    elif whole <= pool._unpooled + pool._free_bytes:
        pool._unpool(whole, &trash)
        pool._unpooled -= whole
        counted = True
    release_lock(&pool._lock)
    free_blocks(trash)
    if counted:
        chunk = <Chunk*>PyMem_RawMalloc(<size_t>whole)
        if chunk == NULL:
            pool.refund(whole)
    if chunk == NULL:
        return NULL
    chunk.next, chunk.size, chunk.used = NULL, whole, 0
    if buffer.chunks == NULL:
        buffer.chunks = chunk
    else:
        buffer.last_chunk.next = chunk
    buffer.last_chunk = chunk
    buffer.chunk_bytes += whole
    return chunk
