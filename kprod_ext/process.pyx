# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Detection of forks, and descriptors that a forked child does not keep.

``os.register_at_fork`` only sees forks by Python's own functions. ``pthread_atfork`` also reports
each ``fork()`` by uWSGI and other C code. Before the child continues, its copies of the descriptors
are closed: later their numbers may belong to files of the application.

On Linux a child made by the system call ``clone`` is detected as well: the kernel clears a page of
memory in it (MADV_WIPEONFORK, Linux 4.14). Its descriptors stay open, because no code of kprod runs
before the application does.
"""

cimport cython

cdef extern from *:
    """
    #include <errno.h>
    #include <pthread.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <time.h>
    #include <unistd.h>

    /* The mark is the generation of this process, 0 in a child that has not asked for its own. It
       is in a page that the kernel clears in a child, if there is memory for a page. */
    static unsigned int kprod_mark_without_page = 1;
    static unsigned int *kprod_mark = &kprod_mark_without_page;
    static unsigned int kprod_last = 1;     /* no process before this one has a greater number */
    static unsigned int kprod_forking;      /* the generation of the process that forks */

    static unsigned int kprod_generation(void) {
        unsigned int mark = __atomic_load_n(kprod_mark, __ATOMIC_ACQUIRE), none = 0;
        if (mark == 0) {
            /* Two threads may be here at once: each takes a number, and the first one's counts. */
            mark = __atomic_add_fetch(&kprod_last, 1, __ATOMIC_SEQ_CST);
            if (!__atomic_compare_exchange_n(
                    kprod_mark, &none, mark, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
                mark = none;
            }
        }
        return mark;
    }

    /* The open descriptors, each with the generation that opened it; 0 is a free place. There is no
       lock, as a thread that is not in the child might hold it. Places are never freed. */
    #define KPROD_PLACES 64
    typedef struct KprodPlaces {
        uint64_t places[KPROD_PLACES];
        struct KprodPlaces *next;
    } KprodPlaces;
    static KprodPlaces kprod_places;

    #define kprod_place(generation, fd) ((uint64_t)(generation) << 32 | (uint32_t)(fd))

    static int kprod_exchange(uint64_t *place, uint64_t before, uint64_t after) {
        return __atomic_compare_exchange_n(
            place, &before, after, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    }

    static int kprod_hold(unsigned int generation, int fd) {
        KprodPlaces *some = &kprod_places, *none;
        uint64_t before;
        int i;
        for (;;) {
            for (i = 0; i < KPROD_PLACES; i++) {
                before = __atomic_load_n(&some->places[i], __ATOMIC_RELAXED);
                /* What a parent had opened, and nothing has closed, is nobody's here. */
                if (before >> 32 != generation
                        && kprod_exchange(&some->places[i], before, kprod_place(generation, fd))) {
                    return 0;
                }
            }
            if (__atomic_load_n(&some->next, __ATOMIC_ACQUIRE) == NULL) {
                KprodPlaces *more = calloc(1, sizeof *more);
                if (more == NULL) return -1;
                none = NULL;
                if (!__atomic_compare_exchange_n(
                        &some->next, &none, more, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
                    free(more);
                }
            }
            some = __atomic_load_n(&some->next, __ATOMIC_ACQUIRE);
        }
    }

    static void kprod_let_go(unsigned int generation, int fd) {
        uint64_t place = kprod_place(generation, fd);
        KprodPlaces *some;
        int i;
        for (some = &kprod_places; some; some = __atomic_load_n(&some->next, __ATOMIC_ACQUIRE)) {
            for (i = 0; i < KPROD_PLACES; i++) {
                if (__atomic_load_n(&some->places[i], __ATOMIC_RELAXED) == place) {
                    __atomic_store_n(&some->places[i], 0, __ATOMIC_SEQ_CST);
                    return;
                }
            }
        }
    }

    /* C code may fork in a thread without the GIL, as uWSGI does. If a sender's thread holds it or
       waits for it at that moment, the child waits for ever: for a GIL that nobody gives up, or in
       the condition variable of the GIL for a thread that it does not have. So such a fork waits
       until the senders' threads sleep, and keeps them asleep. */
    #define KPROD_PAUSE 200000                      /* nanoseconds */
    #define KPROD_PAUSES 5000                       /* 1 s: a sender may be at work for long */
    static __thread unsigned int kprod_is_sender;   /* 1: this thread is a sender's */
    static __thread unsigned int kprod_pauses;      /* 1: its fork keeps the senders asleep */
    static unsigned int kprod_awake;                /* senders' threads that use the GIL */
    static unsigned int kprod_paused;               /* threads that fork */

    static void kprod_pause(void) {
        struct timespec time = {0, KPROD_PAUSE};
        nanosleep(&time, NULL);
    }

    static void kprod_sender_begins(void) {
        kprod_is_sender = 1;
        __atomic_add_fetch(&kprod_awake, 1, __ATOMIC_SEQ_CST);
    }

    static void kprod_sender_ends(void) {
        kprod_is_sender = 0;
        __atomic_sub_fetch(&kprod_awake, 1, __ATOMIC_SEQ_CST);
    }

    /* A wait without the GIL begins, and ends, in any thread. */
    static void kprod_sleeps(void) {
        if (kprod_is_sender) __atomic_sub_fetch(&kprod_awake, 1, __ATOMIC_SEQ_CST);
    }

    static void kprod_wakes(void) {
        int error = errno;
        if (!kprod_is_sender) return;
        /* This thread counts itself, then looks for a fork; a fork does it the other way round. */
        __atomic_add_fetch(&kprod_awake, 1, __ATOMIC_SEQ_CST);
        while (__atomic_load_n(&kprod_paused, __ATOMIC_SEQ_CST)) {
            __atomic_sub_fetch(&kprod_awake, 1, __ATOMIC_SEQ_CST);
            kprod_pause();
            __atomic_add_fetch(&kprod_awake, 1, __ATOMIC_SEQ_CST);
        }
        errno = error;
    }

    static void kprod_before_fork(void) {
        int left = KPROD_PAUSES;
        if (!PyGILState_Check()) {
            kprod_pauses = 1;
            __atomic_add_fetch(&kprod_paused, 1, __ATOMIC_SEQ_CST);
            while (left-- > 0
                    && __atomic_load_n(&kprod_awake, __ATOMIC_SEQ_CST) > kprod_is_sender) {
                kprod_pause();
            }
        }
        __atomic_store_n(
            &kprod_forking, __atomic_load_n(kprod_mark, __ATOMIC_SEQ_CST), __ATOMIC_SEQ_CST);
    }

    static void kprod_in_parent(void) {
        if (kprod_pauses) {
            kprod_pauses = 0;
            __atomic_sub_fetch(&kprod_paused, 1, __ATOMIC_SEQ_CST);
        }
    }

    /* The only thread. Other code must not run yet: it could use the numbers of the descriptors. */
    static void kprod_in_child(void) {
        KprodPlaces *some;
        uint64_t held;
        int i;
        *kprod_mark = 0;
        kprod_awake = kprod_is_sender;
        kprod_pauses = kprod_paused = 0;
        for (some = &kprod_places; some != NULL; some = some->next) {
            for (i = 0; i < KPROD_PLACES; i++) {
                held = some->places[i];
                some->places[i] = 0;
                if (kprod_forking != 0 && held >> 32 == kprod_forking) {
                    close((int)(uint32_t)held);
                }
            }
        }
    }

    static int kprod_watch_forks(void) {
    #ifdef MADV_WIPEONFORK
        long size = sysconf(_SC_PAGESIZE);
        void *page = size <= 0 ? MAP_FAILED : mmap(
            NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page != MAP_FAILED) {
            madvise(page, (size_t)size, MADV_WIPEONFORK);   /* an older kernel refuses */
            *(unsigned int *)page = 1;
            kprod_mark = page;
        }
    #endif
        return pthread_atfork(kprod_before_fork, kprod_in_parent, kprod_in_child);
    }
    """
    unsigned int* kprod_mark
    unsigned int kprod_generation() noexcept nogil
    int kprod_hold(unsigned int generation, int fd) noexcept nogil
    void kprod_let_go(unsigned int generation, int fd) noexcept nogil
    int kprod_watch_forks() noexcept nogil
    void kprod_sender_begins() noexcept nogil
    void kprod_sender_ends() noexcept nogil
    void kprod_sleeps() noexcept nogil
    void kprod_wakes() noexcept nogil
    int close(int fd) noexcept nogil

if kprod_watch_forks() != 0:
    raise MemoryError("no memory for a handler of forks")


cdef const Generation* generation_mark() noexcept nogil:
    return kprod_mark


cdef Generation current_generation() noexcept nogil:
    return kprod_generation()


cdef void thread_sleeps() noexcept nogil:
    kprod_sleeps()


cdef void thread_wakes() noexcept nogil:
    kprod_wakes()


def sender_begins():
    """See the stub."""
    kprod_sender_begins()


def sender_ends():
    """See the stub."""
    kprod_sender_ends()


def generation():
    """See the stub."""
    return kprod_generation()


@cython.final
cdef class Descriptor:
    """See the stub."""

    def __cinit__(self, int fd):
        self.fd = -1
        self._generation = kprod_generation()
        if kprod_hold(self._generation, fd) < 0:
            raise MemoryError("no memory for a descriptor")
        self.fd = fd

    def __dealloc__(self):
        self._close()

    cdef void _close(self) noexcept:
        cdef int fd = self.fd
        self.fd = -1
        if fd >= 0 and self._generation == kprod_generation():
            # In this order: the number may belong to a file of the application once it is closed,
            # and a fork in between must not close that.
            kprod_let_go(self._generation, fd)
            close(fd)

    def close(self):
        """See the stub."""
        self._close()
