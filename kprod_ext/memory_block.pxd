"""Blocks of memory as a pool keeps them, and as a buffer that grew has them: in linked lists."""

from cpython.mem cimport PyMem_RawFree

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
    # The first bytes of memory nobody uses: a link, so that the free list needs no room of its own.
    Block* next


cdef struct Chunk:
    # The first bytes of memory that a buffer has besides what it began with; its bytes follow.
    Chunk* next             # the one that was added after it; first, as in a Block
    Py_ssize_t size         # bytes of the whole block, these included
    Py_ssize_t used         # bytes behind these that hold something; for who writes there to know


cdef inline char* chunk_data(Chunk* chunk) noexcept nogil:
    return <char*>chunk + sizeof(Chunk)


cdef inline void free_blocks(Block* block) noexcept nogil:
    cdef Block* next_block
    while block != NULL:
        next_block = block.next
        PyMem_RawFree(block)
        block = next_block
