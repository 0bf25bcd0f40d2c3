cdef class GrowingMap:
    cdef object _writing
    cdef dict _entries

    cpdef object get(self, object key)
    cpdef object get_or_create(self, object key, object make)
    cpdef list values(self)
