from kprod.buffer.accumulator cimport RecordAccumulator
from kprod_ext.fast_lane cimport LaneTable
from kprod_ext.shared cimport SharedFlag


cdef class FastLanes:
    cdef LaneTable _table
    cdef RecordAccumulator _accumulator
    cdef object _metadata
    cdef object _wake
    cdef object _largest
    cdef SharedFlag _closed

    cpdef object _filled(self, object topic, object partition)
