cimport cython

from kprod.confluent.reports cimport DeliveryReports
from kprod_ext.futures cimport RecordFuture


cdef class Producing:
    cdef public object _native
    cdef readonly DeliveryReports _reports
    cdef object _on_delivery
    cdef Py_ssize_t _most_messages
    cdef bint _keys_by_crc32
    cdef tuple _counts
    cdef bint _tells_statistics
    cdef readonly object _unplaced
    cdef dict _unplaced_topics

    @cython.locals(reports=DeliveryReports, future=RecordFuture, began=double)
    cpdef produce(
        self,
        object topic,
        object value=*,
        object key=*,
        object partition=*,
        object on_delivery=*,
        object timestamp=*,
        object headers=*,
        object callback=*,
    )

    @cython.locals(counts=dict)
    cpdef object _partition(self, object native, object topic, object key)
