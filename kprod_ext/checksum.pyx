# cython: language_level=3, auto_pickle=False, autotestdict=False
"""CRC-32C (Castagnoli, RFC 3720 appendix B.4) of a batch, as fast as memory is read.

After "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ" (Intel, 2009), in registers of
64 bytes. Several independent remainders are kept; for each new block they are moved on by the
block's length, that is multiplied by a power of x, and the block is added. What is left in the
registers at the end is as good as the bytes it stands for, and the processor's own crc32
instruction makes the checksum of it. Where there are no such registers the ``crc32c`` package
computes, which keeps that instruction busy.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport uint32_t

cdef extern from "Python.h":
    enum: PyBUF_READ

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>

    #if defined(__x86_64__) && (defined(__clang__) || (defined(__GNUC__) && __GNUC__ >= 9))
      #include <immintrin.h>
      #include <string.h>

      #define KPROD_CRC_LANES 4             /* enough to hide the time of a multiplication */
      #define KPROD_CRC_BLOCK (64 * KPROD_CRC_LANES)
      #define KPROD_CRC_POLYNOMIAL 0x82F63B78u

      static uint64_t kprod_crc_powers[2];

      /* x to the n-th modulo the polynomial, in reversed bits: bit 32 is x to the power of 0. */
      static uint64_t kprod_crc_power(int n) {
          uint32_t power = 0x80000000u;
          for (; n > 0; n--) {
              power = (power >> 1) ^ ((power & 1) ? KPROD_CRC_POLYNOMIAL : 0);
          }
          return (uint64_t)power << 1;
      }

      static int kprod_crc_prepare(void) {
          /* The first eight bytes of sixteen are 32 bits further away from the next block than its
             length says, the last eight as much nearer. */
          kprod_crc_powers[0] = kprod_crc_power(8 * KPROD_CRC_BLOCK + 32);
          kprod_crc_powers[1] = kprod_crc_power(8 * KPROD_CRC_BLOCK - 32);
          __builtin_cpu_init();
          return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("avx512f")
              && __builtin_cpu_supports("vpclmulqdq");
      }

      __attribute__((target("sse4.2")))
      static uint32_t kprod_crc_by_word(uint32_t crc, const char *data, size_t size) {
          uint64_t remainder = crc, word;
          for (; size >= 8; size -= 8, data += 8) {
              memcpy(&word, data, 8);
              remainder = _mm_crc32_u64(remainder, word);
          }
          for (; size > 0; size--, data++) {
              remainder = _mm_crc32_u8((uint32_t)remainder, (unsigned char)*data);
          }
          return (uint32_t)remainder;
      }

      __attribute__((target("sse4.2,avx512f,vpclmulqdq")))
      static uint32_t kprod_crc_by_block(uint32_t crc, const char *data, size_t size) {
          __m512i lanes[KPROD_CRC_LANES], low, high, powers;
          char left[KPROD_CRC_BLOCK];
          int i;
          powers = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)kprod_crc_powers));
          for (i = 0; i < KPROD_CRC_LANES; i++) {
              lanes[i] = _mm512_loadu_si512(data + 64 * i);
          }
          lanes[0] = _mm512_xor_si512(
              lanes[0], _mm512_inserti32x4(_mm512_setzero_si512(), _mm_cvtsi32_si128((int)crc), 0));
          data += KPROD_CRC_BLOCK;
          size -= KPROD_CRC_BLOCK;
          for (; size >= KPROD_CRC_BLOCK; size -= KPROD_CRC_BLOCK, data += KPROD_CRC_BLOCK) {
              for (i = 0; i < KPROD_CRC_LANES; i++) {
                  low = _mm512_clmulepi64_epi128(lanes[i], powers, 0x00);
                  high = _mm512_clmulepi64_epi128(lanes[i], powers, 0x11);
                  lanes[i] = _mm512_loadu_si512(data + 64 * i);
                  lanes[i] = _mm512_xor_si512(lanes[i], _mm512_xor_si512(low, high));
              }
          }
          for (i = 0; i < KPROD_CRC_LANES; i++) {
              _mm512_storeu_si512(left + 64 * i, lanes[i]);
          }
          return kprod_crc_by_word(kprod_crc_by_word(0, left, KPROD_CRC_BLOCK), data, size);
      }

      static uint32_t kprod_crc(const char *data, size_t size) {
          if (size < 2 * KPROD_CRC_BLOCK) {
              return ~kprod_crc_by_word(~0u, data, size);
          }
          return ~kprod_crc_by_block(~0u, data, size);
      }
    #else
      static int kprod_crc_prepare(void) {
          return 0;
      }

      static uint32_t kprod_crc(const char *data, size_t size) {
          (void)data, (void)size;           /* never called */
          return 0;
      }
    #endif
    """
    bint kprod_crc_prepare() noexcept nogil
    uint32_t kprod_crc(const char* data, size_t size) noexcept nogil

cdef enum:
    LONG = 512 * 1024       # bytes that take so long that others may have the GIL meanwhile

    SIZE_BITS = 63
    TOP_BIT = 0x80000000
    POLYNOMIAL = 0x82F63B78

cdef uint32_t[SIZE_BITS] SQUARES
cdef bint OURS = kprod_crc_prepare()
cdef tuple WAYS = ("avx512", "package") if OURS else ("package",)
cdef object PACKAGE = None      # crc32c.crc32c, once it is needed: its import takes 20 ms


def ways():
    """The ways to compute that this machine has, from the fastest on."""
    return WAYS


def crc32c(data, way=None):
    """The CRC-32C of a C-contiguous buffer, in one of the ``ways``; None: the fastest."""
    cdef Py_buffer view
    if way is not None and way not in WAYS:
        raise ValueError(f"this machine has no way {way!r} to compute a checksum")
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if way == "package":
            return by_package(<const char*>view.buf, view.len)
        return checksum(<const char*>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)


cdef uint32_t checksum(const char* data, Py_ssize_t size) except? 0:
    cdef uint32_t crc
    if not OURS:
        return by_package(data, size)
    if size < LONG:
        return kprod_crc(data, <size_t>size)
    with nogil:
        crc = kprod_crc(data, <size_t>size)
    return crc


cdef bint can_sum() noexcept nogil:
    return OURS


cdef uint32_t sum_of(const char* data, Py_ssize_t size) noexcept nogil:
    return kprod_crc(data, <size_t>size)


def crc32c_joined(uint32_t first, uint32_t second, Py_ssize_t second_size):
    """The CRC-32C of two pieces that follow each other, from that of each."""
    if second_size < 0:
        raise ValueError(f"second_size must not be negative, got {second_size}")
    return joined(first, second, second_size)


cdef uint32_t joined(uint32_t first, uint32_t second, Py_ssize_t second_size) noexcept nogil:
    # What the second piece adds is moved past the first remainder: it is multiplied by x for each
    # bit of the second piece, by powers that are squares of each other.
    cdef int bit = 0
    while second_size > 0:
        if second_size & 1:
            first = product(first, SQUARES[bit])
        second_size >>= 1
        bit += 1
    return first ^ second


cdef uint32_t product(uint32_t a, uint32_t b) noexcept nogil:
    """Of two polynomials modulo the checksum's; bit 31 is x to the power of 0."""
    cdef uint32_t sum = 0
    while a != 0:       # without branches on bits, which nobody can foretell
        sum ^= b & (0 - (a >> 31))
        a <<= 1
        b = (b >> 1) ^ (POLYNOMIAL & (0 - (b & 1)))
    return sum


cdef int prepare_squares() noexcept:
    """SQUARES[k] is x to the power of 8 * 2**k."""
    cdef int k
    SQUARES[0] = TOP_BIT >> 8
    for k in range(1, SIZE_BITS):
        SQUARES[k] = product(SQUARES[k - 1], SQUARES[k - 1])
    return SIZE_BITS


prepare_squares()


cdef uint32_t by_package(const char* data, Py_ssize_t size) except? 0:
    global PACKAGE
    if PACKAGE is None:
        from crc32c import crc32c
        PACKAGE = crc32c
    if size == 0:               # of no bytes there may be no address, which a view must have
        return 0
    return PACKAGE(PyMemoryView_FromMemory(<char*>data, size, PyBUF_READ), 0, size >= LONG)
