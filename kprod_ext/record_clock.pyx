# cython: language_level=3, auto_pickle=False, autotestdict=False
"""The one clock that stamps records which were sent without a time, whatever path they take."""

cimport cython
from libc.stdint cimport int64_t

cdef extern from *:
    """
    /* What the source says; without memory, say, it raises: then the time is what was told last. */
    static long long kprod_ask(PyObject *source, long long latest) {
        PyObject *told = PyObject_CallNoArgs(source);
        long long now = told == NULL ? -1 : PyLong_AsLongLong(told);
        Py_XDECREF(told);
        if (now == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            return latest;
        }
        return now;
    }
    """
    int64_t kprod_ask(object source, int64_t latest) noexcept


@cython.final
@cython.no_gc_clear     # as in the declaration
cdef class RecordClock:
    """Milliseconds since the epoch, which do not go back while the system's clock is adjusted."""

    def __cinit__(self, source=None):
        if source is not None and not callable(source):
            raise TypeError(f"a source is called for the time, and {source!r} cannot be")
        self._source = source

    def wall_ms(self):
        """The time in milliseconds since the epoch."""
        return now_without_gil(self) if self._source is None else self.ask_source()

    cdef int64_t now(self) noexcept:
        if self._source is None:
            return now_without_gil(self)
        return kprod_hold(&self._latest, kprod_ask(self._source, self._latest))

    cdef int64_t ask_source(self) except? -1:
        return kprod_hold(&self._latest, <int64_t>self._source())
