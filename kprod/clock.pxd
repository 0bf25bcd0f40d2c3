cdef class SystemClock:
    cpdef object monotonic(self)
    cpdef object wall_ms(self)
