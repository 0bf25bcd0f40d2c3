"""Numbers, addresses and locks that several threads share, with a GIL and without."""

# Numbers that threads read and write without a lock, with a GIL and without.
#
# With a GIL the Shared... ones are plain numbers, for threads that hold it: they take turns, and a
# thread that gets the GIL sees all earlier writes. Without a GIL they are atomic, in one order for
# all threads: a thread that sees a flag sees all writes before the flag was set, and of two threads
# that each set a flag and then read the other's, at least one sees it.
#
# An AtomicFlag is atomic with a GIL too. It is for flags that a thread without the GIL reads or
# writes, as a bulk call does, unless the readers and writers all take the same lock.
#
# The names are C types, for declarations of attributes.
#
# A reference needs a lock without a GIL if another thread may replace it: the object may be freed
# between reading the address and counting the reference.

cdef extern from *:
    """
    typedef _Atomic int KprodAtomicFlag;
    #ifdef Py_GIL_DISABLED
      #define KPROD_HAS_GIL 0
      typedef _Atomic int KprodSharedFlag;
      typedef _Atomic double KprodSharedTime;
      typedef _Atomic Py_ssize_t KprodSharedCount;
      typedef _Atomic unsigned long KprodSharedThread;
    #else
      #define KPROD_HAS_GIL 1
      typedef int KprodSharedFlag;
      typedef double KprodSharedTime;
      typedef Py_ssize_t KprodSharedCount;
      typedef unsigned long KprodSharedThread;
    #endif

    /* An address: a thread that gets it sees all writes before it was put. */
    #define kprod_put(place, address) __atomic_store_n(&(place), (address), __ATOMIC_RELEASE)
    #define kprod_get(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
    """
    bint KPROD_HAS_GIL
    ctypedef bint AtomicFlag "KprodAtomicFlag"
    ctypedef bint SharedFlag "KprodSharedFlag"
    ctypedef double SharedTime "KprodSharedTime"            # in seconds
    ctypedef Py_ssize_t SharedCount "KprodSharedCount"
    ctypedef unsigned long SharedThread "KprodSharedThread"     # its ident


# A lock to be held for one record, or for some, stored inside the structure that it guards.
#
# Before Python 3.13 ``cython.pymutex`` is a semaphore elsewhere in memory: two more library calls
# per record and, with many partitions in use, one more cache miss. From 3.13 on a ``PyMutex`` is
# one byte, and threads that wait for it are queued. The lock below retries in growing intervals,
# which suffices for a lock that is rarely contended. The caller says whether it has the GIL, which
# it releases while it waits: PyGILState_Check says yes everywhere once a process has had a second
# interpreter, as those of mod_wsgi and uWSGI have.

cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030D0000
      typedef PyMutex KprodRecordLock;
      #define kprod_take_lock(lock) PyMutex_Lock(lock)
      #define kprod_spin_for_lock(lock) PyMutex_Lock(lock)
      #define kprod_release_lock(lock) PyMutex_Unlock(lock)
    #else
      #include <stdatomic.h>
      #include <unistd.h>
      typedef atomic_flag KprodRecordLock;        /* all zero is released */

      #define KPROD_LONGEST_WAIT_US 1000

      static void kprod_wait_for_lock(KprodRecordLock *lock) {
          unsigned int wait_us = 1;
          do {
              usleep(wait_us);
              wait_us = wait_us < KPROD_LONGEST_WAIT_US ? 2 * wait_us : KPROD_LONGEST_WAIT_US;
          } while (atomic_flag_test_and_set_explicit(lock, memory_order_acquire));
      }

      static inline void kprod_take_lock(KprodRecordLock *lock) {
          if (atomic_flag_test_and_set_explicit(lock, memory_order_acquire)) {
              PyThreadState *attached = PyEval_SaveThread();
              kprod_wait_for_lock(lock);
              /* The lock first, then the GIL: what waits for the lock has released the GIL. */
              PyEval_RestoreThread(attached);
          }
      }

      #if defined(__x86_64__)
        #define kprod_pause() __builtin_ia32_pause()
      #elif defined(__aarch64__)
        #define kprod_pause() __asm__ volatile("yield")
      #else
        #define kprod_pause() ((void)0)
      #endif
      #define KPROD_TRIES 200     /* some microseconds: a sleep takes more than fifty */

      static inline void kprod_spin_for_lock(KprodRecordLock *lock) {
          for (int tries = 0; tries < KPROD_TRIES; tries++) {
              if (!atomic_flag_test_and_set_explicit(lock, memory_order_acquire)) {
                  return;
              }
              kprod_pause();
          }
          kprod_wait_for_lock(lock);
      }

      static inline void kprod_release_lock(KprodRecordLock *lock) {
          atomic_flag_clear_explicit(lock, memory_order_release);
      }
    #endif
    """
    ctypedef struct RecordLock "KprodRecordLock":
        pass
    # The first for callers with the GIL, also where Cython takes them for code without it.
    void take_lock "kprod_take_lock" (RecordLock* lock) noexcept nogil
    void spin_for_lock "kprod_spin_for_lock" (RecordLock* lock) noexcept nogil
    void release_lock "kprod_release_lock" (RecordLock* lock) noexcept nogil


# The entry of a dict that another thread may change; None when it has none.

cdef extern from *:
    """
    /* ``dict.get``. Without a GIL Cython's own translation counts the reference too late: another
       thread may have removed the entry, and freed the object, meanwhile. */
    static inline PyObject *kprod_look_up(PyObject *dict, PyObject *key) {
    #if PY_VERSION_HEX >= 0x030D0000
        PyObject *found;
        if (PyDict_GetItemRef(dict, key, &found) < 0) {
            return NULL;
        }
    #else
        PyObject *found = PyDict_GetItemWithError(dict, key);
        if (found == NULL && PyErr_Occurred()) {
            return NULL;
        }
        Py_XINCREF(found);
    #endif
        return found != NULL ? found : Py_NewRef(Py_None);
    }
    """
    object kprod_look_up(dict entries, object key)
