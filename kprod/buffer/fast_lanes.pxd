from kprod.buffer.accumulator cimport RecordAccumulator
from kprod_ext.fast_lane cimport LaneTable


cdef class FastLanes:
    cdef LaneTable _table
    cdef RecordAccumulator _accumulator
    cdef object _metadata
    cdef object _wake
    cdef object _largest
    cdef bint _closed

    cpdef object _filled(self, object topic, object partition)
