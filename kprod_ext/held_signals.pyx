# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Work in the main thread that the application's signal handlers cannot interrupt.

Python runs signal handlers in the main thread, between any two steps of Python code, and they may
raise, as for Ctrl-C. During such work, handlers that are Python code are replaced by one that only
records the signal; afterwards, and in ``let_signals_in``, the application's handlers are called.
Blocking the signals would not help: the system would deliver them to another thread, and Python
would run the handler in the main thread all the same.
"""

from cpython.exc cimport PyErr_CheckSignals, PyErr_SetObject
from cpython.long cimport PyLong_Check
from cpython.pythread cimport PyThread_get_thread_ident

import os
import sys
import threading
import _signal

cdef extern from "Python.h":
    int PyErr_SetInterruptEx(int number)

cdef extern from *:
    """
    #include <signal.h>
    #include <stdint.h>
    typedef struct sigaction KprodAction;
    #define kprod_function(action) ((uintptr_t)(action).sa_handler)
    """
    ctypedef struct Action "KprodAction":
        pass
    int sigaction(int number, const Action* action, Action* before) noexcept
    size_t kprod_function(Action action) noexcept

cdef enum:
    NUMBERS = 128

cdef extern from "Python.h":
    ctypedef object (*OneArgument "PyCFunction")(object module, object argument)
    OneArgument PyCFunction_GetFunction(object function) except NULL
    int PyCFunction_GetFlags(object function) except -1
    int METH_O

# Called for each signal when a caller begins to wait; a call of the object takes thrice as long.
cdef OneArgument handler_of_number = PyCFunction_GetFunction(_signal.getsignal)
if PyCFunction_GetFlags(_signal.getsignal) != METH_O:
    raise ImportError("this Python passes the argument of signal.getsignal in another way")
cdef object handler_of = _signal.getsignal
cdef object set_handler = _signal.signal
cdef tuple SIGNALS = tuple(sorted(map(int, _signal.valid_signals())))


cdef class _Gate:
    """The handler that stands in for the application's. Used by the main thread only."""

    cdef list own               # the application's handlers by signal number
    cdef list taken             # numbers of the signals it stands in for
    cdef list pending           # numbers of the signals that came, in order
    cdef object raised          # the exception of a handler while signals were let in
    cdef bint closed
    cdef unsigned long owner    # the thread that runs the work; 0: none
    cdef size_t pythons         # the C function by which signals reach Python; 0: not known yet

    def __cinit__(self):
        self.own = [None] * NUMBERS
        self.taken = []
        self.pending = []

    def __call__(self, number, frame):
        own = self.own[number]
        if own is None:
            return None
        if self.closed:
            if number not in self.pending:
                self.pending.append(number)
            return None
        try:
            return own(number, frame)
        except BaseException as error:
            self.raised = error
            raise

    cdef object take_over(self):
        """Stand in for every handler that is Python code. Raises the exception of a due handler."""
        for number in SIGNALS:
            own = handler_of_number(_signal, number)
            # The defaults are numbers; a handler that Python did not install is None.
            if own is None or PyLong_Check(own) or own is self:
                continue
            self.own[number] = own
            if self.is_pythons(number):
                self.taken.append(number)
                set_handler(number, self)  # this runs handlers that are due

    cdef bint is_pythons(self, int number) except -1:
        """Whether the system calls Python for this signal.

        C code may have put a function of its own in the place of Python's, as uWSGI does in its
        workers. Python does not know, and to exchange its handlers would remove that function.
        """
        cdef Action action
        if self.pythons == 0:
            self.learn(number)
        return sigaction(number, NULL, &action) == 0 and kprod_function(action) == self.pythons

    cdef int learn(self, int number) except -1:
        """Find out which function it is: install it, look, and put back what was there."""
        cdef Action before, action
        cdef object raised
        if sigaction(number, NULL, &before) != 0:
            return 0
        set_handler(number, self)   # this runs handlers that are due, and installs nothing then
        if sigaction(number, NULL, &action) == 0:
            self.pythons = kprod_function(action)
        raised = self.put_back(number)
        sigaction(number, &before, NULL)
        if raised is not None:
            throw(raised)
        return 0

    cdef object hand_back(self):
        """Put the application's handlers back. Returns the exception of a due handler."""
        cdef object raised = None
        for number in self.taken:
            raised = self.put_back(number) or raised
        self.taken.clear()
        return raised

    cdef object put_back(self, int number):
        cdef object raised = None
        while handler_of(number) is self:  # not if the application has set another meanwhile
            try:
                set_handler(number, self.own[number])
            except BaseException as error:
                raised = raised or error
        return raised

    cdef object deliver(self):
        """Call the handlers of the signals that came. Returns the first exception."""
        cdef object raised = None
        while self.pending and raised is None:
            number = self.pending.pop(0)
            try:
                self.own[number](number, sys._getframe())
            except BaseException as error:
                raised = error
        while self.pending:  # Python itself calls the others at the next step
            PyErr_SetInterruptEx(self.pending.pop())
        return raised


cdef _Gate GATE = _Gate()
cdef unsigned long MAIN = threading.main_thread().ident


cdef bint handles_signals() noexcept:
    return PyThread_get_thread_ident() == MAIN


def hold_signals(work, *args):
    """Call ``work(*args)``; signal handlers of the application run after it.

    An exception of a handler replaces the result or the exception of ``work``. In other threads
    than the main one it is a call like any other: handlers do not run there.
    """
    cdef object late
    if not handles_signals():
        return work(*args)
    if GATE.owner == MAIN:  # a handler or a finalizer within such work calls this
        return _held(work, args)
    GATE.owner = MAIN
    GATE.closed = True
    try:
        GATE.take_over()
        return work(*args)
    finally:
        late = GATE.hand_back()
        GATE.owner = 0
        late = GATE.deliver() or late
        GATE.raised = None
        if late is not None:
            throw(late)


cdef int throw(object error) except -1:
    """Raise an exception of the application's handler."""
    PyErr_SetObject(type(error), error)
    return -1


cdef object _held(object work, tuple args):
    cdef bint before = GATE.closed
    GATE.closed = True
    try:
        return work(*args)
    finally:
        GATE.closed = before


def let_signals_in(wait, /, *args):
    """Call ``wait(*args)``. Signal handlers run before and in it, even within ``hold_signals``."""
    cdef object raised
    if GATE.owner != PyThread_get_thread_ident():
        return wait(*args)
    GATE.raised = None
    GATE.closed = False
    try:
        raised = GATE.deliver()
        if raised is not None:
            GATE.raised = raised
            throw(raised)
        return wait(*args)
    finally:
        GATE.closed = True


def raised_by_signal(error, /):
    """Whether a signal handler raised ``error`` when signals were let in last."""
    return GATE.owner == PyThread_get_thread_ident() and error is GATE.raised


def acquire_in_rounds(lock, double timeout, /):
    """Acquire ``lock`` within ``timeout`` seconds, as one that handles signals meanwhile."""
    cdef double seconds = ROUND / 1e9
    while not 0 <= timeout <= seconds:
        if lock.acquire(True, seconds):
            return True
        PyErr_CheckSignals()
        if timeout > 0:
            timeout -= seconds
    return lock.acquire(True, timeout)


def _in_child():
    """A child that another thread forked has none of the main thread's work, but its handler."""
    global MAIN
    MAIN = PyThread_get_thread_ident()
    if GATE.owner not in (0, MAIN):
        GATE.owner = 0
        GATE.pending.clear()
        GATE.hand_back()


os.register_at_fork(after_in_child=_in_child)
