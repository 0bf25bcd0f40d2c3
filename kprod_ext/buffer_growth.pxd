"""More memory for a buffer whose content stays where it is: chunks of the pool's, in a list.

A ``PooledBuffer`` begins with one piece of memory. A batch that goes on filling takes chunks, each
as large as the blocks that the pool keeps, or larger for a record that needs that. What is in the
chunk before stays as it is: nothing is copied, and whoever sends the batch sends its pieces.
"""

cimport cython
from cpython.mem cimport PyMem_RawMalloc

from kprod_ext.buffer_pool cimport BufferPool, PooledBuffer
from kprod_ext.memory_block cimport Block, Chunk, free_blocks


cdef inline Py_ssize_t chunk_size(BufferPool pool, Py_ssize_t size) noexcept nogil:
    """Bytes of a chunk with room for ``size`` bytes, as the pool counts it."""
    return max(size + <Py_ssize_t>sizeof(Chunk), pool.poolable_size)


@cython.nonecheck(False)
cdef inline Chunk* add_chunk(BufferPool pool, PooledBuffer buffer, Py_ssize_t size) noexcept nogil:
    """Room for ``size`` bytes behind all that a buffer of the pool has; NULL: it is not there now.

    Never waits, nor overtakes a thread that does: while one waits, nothing is free. The caller has
    the buffer for itself.
    """
    cdef Block* trash = NULL
    cdef Chunk* chunk = NULL
    cdef Py_ssize_t whole = chunk_size(pool, size)
    with pool._lock:
        if whole == pool.poolable_size and pool._free != NULL:
            chunk = <Chunk*>pool._pop_free()
        elif whole <= pool._unpooled + pool._free_bytes:
            chunk = <Chunk*>PyMem_RawMalloc(<size_t>whole)
            if chunk != NULL:
                pool._unpool(whole, &trash)
                pool._unpooled -= whole
    free_blocks(trash)
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
