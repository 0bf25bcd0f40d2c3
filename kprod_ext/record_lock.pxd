"""A lock to be held for one record, or for some: it lies within what it guards.

Before Python 3.13 ``cython.pymutex`` is a semaphore somewhere else in memory: two more system
library calls per record and, with many partitions in use, one more line that is not in any cache.
From 3.13 on a ``PyMutex`` is one byte, and threads that wait for it are queued. Here threads that
wait try again and again, in longer and longer intervals; that is good enough for a lock that is
held so briefly that it is hardly ever seen taken. Who waits lets go of the GIL; it may be taken and
released without.
"""

cdef extern from *:
    """
    #if PY_VERSION_HEX >= 0x030D0000
      typedef PyMutex KprodRecordLock;
      #define kprod_take_lock(lock) PyMutex_Lock(lock)
      #define kprod_release_lock(lock) PyMutex_Unlock(lock)
    #else
      #include <stdatomic.h>
      #include <unistd.h>
      typedef atomic_flag KprodRecordLock;        /* all zero is released */

      #define KPROD_LONGEST_WAIT_US 1000

      static void kprod_wait_for_lock(KprodRecordLock *lock) {
          PyThreadState *attached = PyGILState_Check() ? PyEval_SaveThread() : NULL;
          unsigned int wait_us = 1;
          do {
              usleep(wait_us);
              wait_us = wait_us < KPROD_LONGEST_WAIT_US ? 2 * wait_us : KPROD_LONGEST_WAIT_US;
          } while (atomic_flag_test_and_set_explicit(lock, memory_order_acquire));
          /* Taken before the GIL is: whoever has that and wants this lets go of it meanwhile. */
          if (attached != NULL) {
              PyEval_RestoreThread(attached);
          }
      }

      static inline void kprod_take_lock(KprodRecordLock *lock) {
          if (atomic_flag_test_and_set_explicit(lock, memory_order_acquire)) {
              kprod_wait_for_lock(lock);
          }
      }

      static inline void kprod_release_lock(KprodRecordLock *lock) {
          atomic_flag_clear_explicit(lock, memory_order_release);
      }
    #endif
    """
    ctypedef struct RecordLock "KprodRecordLock":
        pass
    void take_lock "kprod_take_lock" (RecordLock* lock) noexcept nogil
    void release_lock "kprod_release_lock" (RecordLock* lock) noexcept nogil
