# cython: language_level=3, auto_pickle=False, autotestdict=False
"""CRC-32C (Castagnoli, RFC 3720 appendix B.4) of a batch, which never needs the interpreter.

The processor's crc32 instruction takes eight bytes, and its result is there some cycles later. So
three pieces of the data are summed side by side, and their sums are joined: the first is moved
past the second by a carry-less multiplication with a power of x, after "Fast CRC Computation for
iSCSI Polynomial Using CRC32 Instruction" (Intel, 2011). Processors without these instructions look
eight bytes up in eight tables, after "A Systematic Approach to Building High Performance
Software-based CRC Generators" (Kounavis and Berry, 2005). Which of the paths is taken is decided
once, when this module is loaded; ``KPROD_CRC32C`` in the environment names another one.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

import os

cdef extern from *:
    """
    #include <stddef.h>
    #include <stdint.h>
    #include <string.h>

    #define KPROD_CRC_POLYNOMIAL 0x82F63B78u

    /* Remainders are polynomials in reversed bits: bit 31 is x to the power of 0. */
    static uint32_t kprod_crc_product(uint32_t a, uint32_t b) {
        uint32_t sum = 0;
        for (; a != 0; a <<= 1) {         /* without branches on bits, which nobody can foretell */
            sum ^= b & (0 - (a >> 31));
            b = (b >> 1) ^ (KPROD_CRC_POLYNOMIAL & (0 - (b & 1)));
        }
        return sum;
    }

    /* One path: a remainder and more bytes make the remainder of all. */
    typedef uint32_t (*kprod_crc_more)(uint32_t crc, const char *data, size_t size);

    /* -- Tables: [k][byte] is the remainder of the byte with k zero bytes behind it. */

    static uint32_t kprod_crc_tables[8][256];

    static void kprod_crc_fill_tables(void) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = (uint32_t)byte;
            for (int bit = 0; bit < 8; bit++) {
                crc = (crc >> 1) ^ (KPROD_CRC_POLYNOMIAL & (0 - (crc & 1)));
            }
            kprod_crc_tables[0][byte] = crc;
        }
        for (int k = 1; k < 8; k++) {
            for (int byte = 0; byte < 256; byte++) {
                uint32_t crc = kprod_crc_tables[k - 1][byte];
                kprod_crc_tables[k][byte] = (crc >> 8) ^ kprod_crc_tables[0][crc & 255];
            }
        }
    }

    static uint32_t kprod_crc_by_tables(uint32_t crc, const char *data, size_t size) {
        const unsigned char *at = (const unsigned char *)data;
        for (; size >= 8; size -= 8, at += 8) {
            crc ^= at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
            crc = kprod_crc_tables[7][crc & 255] ^ kprod_crc_tables[6][crc >> 8 & 255]
                ^ kprod_crc_tables[5][crc >> 16 & 255] ^ kprod_crc_tables[4][crc >> 24]
                ^ kprod_crc_tables[3][at[4]] ^ kprod_crc_tables[2][at[5]]
                ^ kprod_crc_tables[1][at[6]] ^ kprod_crc_tables[0][at[7]];
        }
        for (; size > 0; size--, at++) {
            crc = (crc >> 8) ^ kprod_crc_tables[0][(crc ^ *at) & 255];
        }
        return crc;
    }

    /* -- The instructions, by whatever names a compiler has for them. */

    #if defined(__x86_64__) && (defined(__clang__) || defined(__GNUC__))
      #include <immintrin.h>
      #define KPROD_CRC_INSTRUCTION "sse4.2"
      #define KPROD_CRC_TARGET __attribute__((target("sse4.2,pclmul")))
      #define KPROD_CRC_WORD(crc, word) ((uint32_t)_mm_crc32_u64(crc, word))
      #define KPROD_CRC_BYTE(crc, byte) _mm_crc32_u8(crc, byte)

      KPROD_CRC_TARGET static inline uint64_t kprod_crc_times(uint32_t a, uint32_t b) {
          __m128i left = _mm_cvtsi32_si128((int)a), right = _mm_cvtsi32_si128((int)b);
          return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(left, right, 0));
      }

      static int kprod_crc_has_instruction(void) {
          __builtin_cpu_init();
          return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
      }
    #elif defined(__aarch64__) && defined(__AARCH64EL__) && defined(__linux__) && defined(__GNUC__)
      #include <arm_acle.h>
      #include <arm_neon.h>
      #include <sys/auxv.h>
      #define KPROD_CRC_INSTRUCTION "armv8"
      #define KPROD_CRC_TARGET __attribute__((target("+crc+crypto")))
      #define KPROD_CRC_WORD(crc, word) __crc32cd(crc, word)
      #define KPROD_CRC_BYTE(crc, byte) __crc32cb(crc, byte)

      KPROD_CRC_TARGET static inline uint64_t kprod_crc_times(uint32_t a, uint32_t b) {
          return vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64(a, b)), 0);
      }

      static int kprod_crc_has_instruction(void) {
          unsigned long wanted = 1 << 7 | 1 << 4;       /* HWCAP_CRC32 and HWCAP_PMULL of Linux */
          return (getauxval(AT_HWCAP) & wanted) == wanted;
      }
    #endif

    #ifdef KPROD_CRC_INSTRUCTION
    /* Bytes of one of three pieces: long ones, so that sums are seldom joined, then short ones. */
    #define KPROD_CRC_WIDTHS 3
    #define KPROD_CRC_LINE 64           /* bytes that memory is read in */
    static const size_t kprod_crc_piece[KPROD_CRC_WIDTHS] = {8192, 1024, 256};
    static uint32_t kprod_crc_past_one[KPROD_CRC_WIDTHS], kprod_crc_past_two[KPROD_CRC_WIDTHS];

    /* What to multiply with to move a remainder past the bytes. The product of two remainders has
       64 bits, the topmost 0, and the instruction takes it for one that is 32 bits further on. */
    static uint32_t kprod_crc_past(size_t bytes) {
        uint32_t power = 0x80000000u;
        for (size_t n = 0; n < 8 * bytes - 33; n++) {
            power = (power >> 1) ^ (KPROD_CRC_POLYNOMIAL & (0 - (power & 1)));
        }
        return power;
    }

    static void kprod_crc_prepare_pieces(void) {
        for (int i = 0; i < KPROD_CRC_WIDTHS; i++) {
            kprod_crc_past_one[i] = kprod_crc_past(kprod_crc_piece[i]);
            kprod_crc_past_two[i] = kprod_crc_past(2 * kprod_crc_piece[i]);
        }
    }

    /* A batch is in the caches of the core that has written it, seldom in ours. The processor
       foresees which lines come next in a piece, but not where the next three pieces begin. So each
       line asks for the one that is as far from it as the next three are; it need not exist. */
    KPROD_CRC_TARGET
    static uint32_t kprod_crc_by_instruction(uint32_t crc, const char *data, size_t size) {
        uint64_t word;
        for (int i = 0; i < KPROD_CRC_WIDTHS; i++) {
            const size_t piece = kprod_crc_piece[i];
            for (; size >= 3 * piece; size -= 3 * piece, data += 3 * piece) {
                uint32_t second = 0, third = 0;
                for (const char *line = data; line < data + piece; line += KPROD_CRC_LINE) {
                    __builtin_prefetch(line + 3 * piece);
                    __builtin_prefetch(line + 4 * piece);
                    __builtin_prefetch(line + 5 * piece);
                    for (const char *at = line; at < line + KPROD_CRC_LINE; at += 8) {
                        memcpy(&word, at, 8);
                        crc = KPROD_CRC_WORD(crc, word);
                        memcpy(&word, at + piece, 8);
                        second = KPROD_CRC_WORD(second, word);
                        memcpy(&word, at + 2 * piece, 8);
                        third = KPROD_CRC_WORD(third, word);
                    }
                }
                word = kprod_crc_times(crc, kprod_crc_past_two[i])
                    ^ kprod_crc_times(second, kprod_crc_past_one[i]);
                crc = third ^ KPROD_CRC_WORD(0, word);
            }
        }
        for (; size >= 8; size -= 8, data += 8) {
            memcpy(&word, data, 8);
            crc = KPROD_CRC_WORD(crc, word);
        }
        for (; size > 0; size--, data++) {
            crc = KPROD_CRC_BYTE(crc, (unsigned char)*data);
        }
        return crc;
    }
    #endif

    /* -- The paths this processor has, the fastest first. */

    static const char *kprod_crc_names[2];
    static kprod_crc_more kprod_crc_paths[2];
    static kprod_crc_more kprod_crc_chosen;

    static int kprod_crc_prepare(void) {
        int count = 0;
    #ifdef KPROD_CRC_INSTRUCTION
        if (kprod_crc_has_instruction()) {
            kprod_crc_prepare_pieces();
            kprod_crc_names[count] = KPROD_CRC_INSTRUCTION;
            kprod_crc_paths[count++] = kprod_crc_by_instruction;
        }
    #endif
        kprod_crc_fill_tables();
        kprod_crc_names[count] = "tables";
        kprod_crc_paths[count++] = kprod_crc_by_tables;
        return count;
    }

    static void kprod_crc_choose(int path) {
        kprod_crc_chosen = kprod_crc_paths[path];
    }

    static uint32_t kprod_crc(const char *data, size_t size) {
        return ~kprod_crc_chosen(~0u, data, size);
    }

    static uint32_t kprod_crc_onwards(uint32_t crc, const char *data, size_t size) {
        return ~kprod_crc_chosen(~crc, data, size);
    }

    static uint32_t kprod_crc_by(int path, const char *data, size_t size) {
        return ~kprod_crc_paths[path](~0u, data, size);
    }
    """
    const char** kprod_crc_names
    int kprod_crc_prepare() noexcept nogil
    void kprod_crc_choose(int path) noexcept nogil
    uint32_t kprod_crc(const char* data, size_t size) noexcept nogil
    uint32_t kprod_crc_onwards(uint32_t crc, const char* data, size_t size) noexcept nogil
    uint32_t kprod_crc_by(int path, const char* data, size_t size) noexcept nogil
    uint32_t product "kprod_crc_product"(uint32_t a, uint32_t b) noexcept nogil

cdef enum:
    SIZE_BITS = 63
    TOP_BIT = 0x80000000

cdef uint32_t[SIZE_BITS] SQUARES
cdef tuple PATHS = ()
cdef int CHOSEN


def paths():
    """The paths this processor has, from the fastest on."""
    return PATHS


def path():
    """The path that batches take."""
    return PATHS[CHOSEN]


cdef int number_of(object path) except -1:
    if path not in PATHS:
        raise ValueError(f"the paths to a CRC-32C are {', '.join(PATHS)} here, not {path!r}")
    return PATHS.index(path)


for number in range(kprod_crc_prepare()):
    PATHS += (kprod_crc_names[number].decode(),)
del number                          # of the loop, and no part of the module
CHOSEN = number_of(os.environ.get("KPROD_CRC32C") or PATHS[0])
kprod_crc_choose(CHOSEN)


def crc32c(data, path=None):
    """The CRC-32C of a C-contiguous buffer by one of the ``paths``; None: the one batches take."""
    cdef Py_buffer view
    cdef int number = CHOSEN if path is None else number_of(path)
    cdef uint32_t crc
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        with nogil:
            crc = kprod_crc_by(number, <const char*>view.buf, <size_t>view.len)
        return crc
    finally:
        PyBuffer_Release(&view)


cdef uint32_t checksum(const char* data, Py_ssize_t size) noexcept nogil:
    return kprod_crc(data, <size_t>size)


cdef uint32_t checksum_onwards(uint32_t crc, const char* data, Py_ssize_t size) noexcept nogil:
    return kprod_crc_onwards(crc, data, <size_t>size)


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


cdef int prepare_squares() noexcept:
    """SQUARES[k] is x to the power of 8 * 2**k."""
    cdef int k
    SQUARES[0] = TOP_BIT >> 8
    for k in range(1, SIZE_BITS):
        SQUARES[k] = product(SQUARES[k - 1], SQUARES[k - 1])
    return SIZE_BITS


prepare_squares()
