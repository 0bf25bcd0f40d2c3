"""What several threads read and write without a lock, with a GIL and without.

Where there is a GIL these are plain numbers: threads take turns, and whoever gets the GIL sees all
that was written before. Without one they are atomic and in one order for all threads, so what was
written before a flag was set is seen by whoever sees the flag, and of two threads that each set a
flag and then look at the other's, one sees it. Names of C types, for declarations of attributes.

References are another matter: without a GIL, to read one that another thread may replace needs a
lock, for between reading the address and counting the reference the object may be gone.
"""

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

    /* An address: what was written before it was put here is seen by whoever gets it. */
    #define kprod_put(place, address) __atomic_store_n(&(place), (address), __ATOMIC_RELEASE)
    #define kprod_get(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
    """
    bint KPROD_HAS_GIL
    ctypedef bint SharedFlag "KprodSharedFlag"
    ctypedef double SharedTime "KprodSharedTime"            # in seconds
    ctypedef Py_ssize_t SharedCount "KprodSharedCount"
    ctypedef unsigned long SharedThread "KprodSharedThread"     # its ident
