# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Which objects the garbage collector walks over: not those that cannot be part of a ring."""

cdef extern from "Python.h":
    bint PyObject_GC_IsTracked(object one)
    void PyObject_GC_Track(object one)
    void PyObject_GC_UnTrack(object one)


cpdef void untrack(object one) noexcept:
    """Let the collector pass over an object."""
    PyObject_GC_UnTrack(one)


cpdef void track(object one) noexcept:
    """Let the collector see an object again."""
    if not PyObject_GC_IsTracked(one):
        PyObject_GC_Track(one)
