"""What wakes one thread at a time that others may change while it sleeps.

On Linux a timer of the kernel with a descriptor. Elsewhere the thread looks every millisecond, as
no lock or condition lets others change how long it is waited for. ``kprod_set_alarm`` of a time
that is over wakes the thread at once, or ends its next wait.
"""

cdef extern from *:
    """
    #ifdef __linux__
      #include <sys/timerfd.h>
      #include <unistd.h>
      typedef struct { int fd; } KprodAlarm;

      static int kprod_open_alarm(KprodAlarm *alarm) {
          alarm->fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
          return alarm->fd;
      }
      static void kprod_close_alarm(KprodAlarm *alarm) {
          close(alarm->fd);
      }
      /* Nanoseconds on the clock that never jumps, from 1. */
      static void kprod_set_alarm(KprodAlarm *alarm, long long at) {
          struct itimerspec when = {{0, 0}, {at / 1000000000, at % 1000000000}};
          timerfd_settime(alarm->fd, TFD_TIMER_ABSTIME, &when, NULL);
      }
      /* It may return too early: then a signal has come. */
      static void kprod_await_alarm(KprodAlarm *alarm) {
          unsigned long long times;
          if (read(alarm->fd, &times, sizeof times) < 0) { /* as said */ }
      }
    #else
      #include <errno.h>
      #define KPROD_ALARM_TICK_US 1000
      /* Who rings gives the bell back once; who waits takes it. */
      typedef struct { PyThread_type_lock bell; int rung; } KprodAlarm;

      static int kprod_open_alarm(KprodAlarm *alarm) {
          alarm->bell = PyThread_allocate_lock();
          if (alarm->bell == NULL) {
              errno = ENOMEM;
              return -1;
          }
          PyThread_acquire_lock(alarm->bell, 1);
          return 0;
      }
      static void kprod_close_alarm(KprodAlarm *alarm) {
          if (!__atomic_exchange_n(&alarm->rung, 1, __ATOMIC_SEQ_CST)) {
              PyThread_release_lock(alarm->bell);
          }
          PyThread_free_lock(alarm->bell);
      }
      static void kprod_set_alarm(KprodAlarm *alarm, long long at) {
          if (at == 1 && !__atomic_exchange_n(&alarm->rung, 1, __ATOMIC_SEQ_CST)) {
              PyThread_release_lock(alarm->bell);
          }
      }
      static void kprod_await_alarm(KprodAlarm *alarm) {
          if (PyThread_acquire_lock_timed(alarm->bell, KPROD_ALARM_TICK_US, 0)) {
              __atomic_store_n(&alarm->rung, 0, __ATOMIC_SEQ_CST);
          }
      }
    #endif
    """
    ctypedef struct Alarm "KprodAlarm":
        pass
    int kprod_open_alarm(Alarm *alarm) noexcept
    void kprod_close_alarm(Alarm *alarm) noexcept
    void kprod_set_alarm(Alarm *alarm, long long at) noexcept nogil
    void kprod_await_alarm(Alarm *alarm) noexcept nogil
