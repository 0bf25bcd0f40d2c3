# cython: language_level=3, auto_pickle=False, autotestdict=False
"""What a record's future knows: which batch, which place in it, and what was handed in.

The class is made to be subclassed: how a future waits and calls back is readable Python, and only
that it exists, once per record, is compiled.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t


@cython.no_gc
cdef class RecordFuture:
    """The place of one record in the batch whose ``delivery`` tells its outcome."""

    def __init__(
        self,
        delivery,
        int32_t index,
        int64_t timestamp,
        int32_t key_size,
        int32_t value_size,
        int32_t header_size,
    ):
        self.delivery = delivery
        self.index = index
        self.timestamp = timestamp
        self.key_size = key_size
        self.value_size = value_size
        self.header_size = header_size
