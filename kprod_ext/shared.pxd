"""What several threads read, write and lock, with a GIL and without."""

# What several threads read and write without a lock, with a GIL and without.
#
# With a GIL these are plain numbers: threads take turns, and a thread that gets the GIL sees all
# that was written before. Without one they are atomic and in one order for all threads: a thread
# that sees a flag sees what was written before the flag was set, and of two threads that each set a
# flag and then look at the other's, one sees it. Names of C types, for declarations of attributes.
#
# References are another matter: without a GIL, to read one that another thread may replace needs a
# lock, for between reading the address and counting the reference the object may be gone.

cdef extern from *:
    """
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

    /* An address: a thread that gets it sees what was written before it was put. */
    #define kprod_put(place, address) __atomic_store_n(&(place), (address), __ATOMIC_RELEASE)
    #define kprod_get(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
    """
    bint KPROD_HAS_GIL
    ctypedef bint SharedFlag "KprodSharedFlag"
    ctypedef double SharedTime "KprodSharedTime"            # in seconds
    ctypedef Py_ssize_t SharedCount "KprodSharedCount"
    ctypedef unsigned long SharedThread "KprodSharedThread"     # its ident


# A lock to be held for one record, or for some: it lies within what it guards.
#
# Before Python 3.13 ``cython.pymutex`` is a semaphore somewhere else in memory: two more system
# library calls per record and, with many partitions in use, one more line that is not in any cache.
# From 3.13 on a ``PyMutex`` is one byte, and threads that wait for it are queued. Here threads that
# wait try again and again, in longer and longer intervals; that is good enough for a lock that is
# held so briefly that it is hardly ever seen taken. A thread that waits lets go of the GIL; the
# lock may be taken and released without the GIL.

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
          /* The lock first, then the GIL: its holder lets go of the GIL while it waits here. */
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
