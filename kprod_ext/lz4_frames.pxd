cimport cython


cdef extern from *:
    """
    #include <stddef.h>

    /* LZ4F_preferences_t of the library's lz4frame.h, as it has been since version 1.8.2. */
    typedef struct {
        int block_size;                 /* 0: 64 KiB */
        int independent_blocks;
        int content_checksum;
        int frame_type;
        unsigned long long content_size;
        unsigned dictionary;
        int block_checksum;
        int level;
        unsigned flushes_at_once;
        unsigned favors_reading;
        unsigned reserved[3];
    } kprod_lz4_preferences;

    /* LZ4F_compressFrame and LZ4F_compressFrameBound */
    typedef size_t (*kprod_lz4_compress)(
        void *, size_t, const void *, size_t, const kprod_lz4_preferences *);
    typedef size_t (*kprod_lz4_bound)(size_t, const kprod_lz4_preferences *);
    """
    ctypedef struct Lz4Preferences "kprod_lz4_preferences":
        int independent_blocks
        int level

    ctypedef size_t (*Lz4Compress "kprod_lz4_compress")(
        void*, size_t, const void*, size_t, const Lz4Preferences*
    ) noexcept nogil
    ctypedef size_t (*Lz4Bound "kprod_lz4_bound")(size_t, const Lz4Preferences*) noexcept nogil


cdef struct Piece:
    Py_buffer records
    size_t end                          # of its frame, in the memory of all frames


@cython.final
@cython.no_gc           # refers to nothing
cdef class Lz4Frames:
    cdef Lz4Compress _compress
    cdef Lz4Bound _bound
    cdef Lz4Preferences _preferences

    cdef list _several(self, list records, Piece* pieces)
    cdef Py_ssize_t _write(
        self, Piece* pieces, Py_ssize_t count, char* frames, size_t room
    ) noexcept nogil
