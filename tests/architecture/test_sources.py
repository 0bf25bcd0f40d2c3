"""The scanner the other tests of this folder rely on."""

from __future__ import annotations

from tests.architecture.sources import Function, cython_functions, python_functions

CYTHON = '''\
from libc.stdint cimport int64_t

cdef int64_t total = compute(3)
cdef class Pool(Base):
    cdef int size
    cdef dict names

    def allocate(self, Py_ssize_t size,
                 double timeout):
        """Docstring.

        More of it.
        """
        return size

    cdef int grow(self, Py_ssize_t need) except -1:
        # why
        return 0


cdef inline char* put(char* out) noexcept nogil:
    return out
'''


PYTHON = """\
def outer(
    a: int,
) -> int:
    def inner() -> int:
        return a
    return inner()
"""


def test_cython_functions_are_found_with_their_lengths() -> None:
    assert [(f.line, f.length) for f in cython_functions(CYTHON)] == [(8, 7), (16, 3), (21, 2)]


def test_cython_declarations_are_not_functions() -> None:
    declarations = "cdef int grow(int need) except -1\ncdef extern from 'x.h':\n    int f(int)\n"
    assert list(cython_functions(declarations)) == []


def test_python_functions_are_found_with_their_lengths() -> None:
    assert list(python_functions(PYTHON)) == [Function("outer", 1, 6), Function("inner", 4, 2)]
