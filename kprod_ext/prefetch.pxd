"""Asking for memory before it is read or written, where the compiler can say so."""

cdef enum:
    CACHE_LINE = 64         # bytes, as good as everywhere; a wrong guess costs time only


cdef extern from *:
    """
    #if defined(__GNUC__)
      #define kprod_prefetch(address) __builtin_prefetch(address)
      #define kprod_prefetch_to_write(address) __builtin_prefetch(address, 1)
    #else
      #define kprod_prefetch(address) (void)(address)
      #define kprod_prefetch_to_write(address) (void)(address)
    #endif
    """
    void kprod_prefetch(const void* address) noexcept nogil
    void kprod_prefetch_to_write(const void* address) noexcept nogil
