/* The hot half of the counting sink: reads Produce requests, counts what is in them, acknowledges
 * each at once and keeps nothing. Other requests are answered by a function of the caller's.
 *
 * In C because it shares the machine with the producers it measures, and has a part in the latency
 * of each of their records. Every byte is read into this process, as a broker would. One thread.
 *
 * With SINK_TLS it ends TLS 1.3 by OpenSSL, with the one cipher it is told.
 *
 * Formats: Produce versions 3 to 9 (9 is the first with compact lengths), batches of magic 2.
 */

#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef SINK_TLS
#include <openssl/ssl.h>
#include <poll.h>
#endif

enum {
    PRODUCE = 0,
    FIRST_VERSION = 3,
    COMPACT_VERSION = 9,
    START_OFFSET_VERSION = 5, /* the answer tells the log's start offset from here on */
    RECORD_ERRORS_VERSION = 8, /* and which records were refused */
    ROOM = 1 << 20,       /* bytes a connection's buffer begins with: what a cache holds */
    ANSWER_ROOM = 8 << 20, /* bytes that other answers may take: metadata of 100,000 partitions */
    BATCH_HEADER = 61,
    EVENTS = 64,
};

typedef int64_t (*answer_t)(const uint8_t *frame, int64_t size, uint8_t *answer, int64_t room);

typedef struct {
    int64_t records, batches, requests, batch_bytes, idempotent_batches;
    int64_t batches_by_codec[8]; /* the three codec bits of a batch's attributes */
    int64_t connections, malformed;
} sink_counts;

typedef struct {
    int fd;
    uint8_t *data;
    size_t start, end, room;
#ifdef SINK_TLS
    SSL *tls;
#endif
} peer;

/* A place in a request. Reading past the end makes it `bad`, and every later value 0. */
typedef struct {
    const uint8_t *at, *end;
    int bad;
} reader;

typedef struct {
    uint8_t *data;
    size_t size, room;
} writer;

static const uint8_t *take(reader *in, size_t size) {
    if (in->bad || (size_t)(in->end - in->at) < size) {
        in->bad = 1;
        return NULL;
    }
    const uint8_t *here = in->at;
    in->at += size;
    return here;
}

static int16_t read_int16(reader *in) {
    const uint8_t *here = take(in, 2);
    uint16_t value = 0;
    if (here) memcpy(&value, here, 2);
    return (int16_t)be16toh(value);
}

static int32_t read_int32(reader *in) {
    const uint8_t *here = take(in, 4);
    uint32_t value = 0;
    if (here) memcpy(&value, here, 4);
    return (int32_t)be32toh(value);
}

static int32_t read_uvarint(reader *in) {
    uint32_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        const uint8_t *here = take(in, 1);
        if (!here) return 0;
        value |= (uint32_t)(*here & 0x7f) << shift;
        if (*here < 0x80) return (int32_t)value;
    }
    in->bad = 1;
    return 0;
}

/* The length of an array or of bytes; -1 for null. */
static int32_t read_count(reader *in, int compact) {
    return compact ? read_uvarint(in) - 1 : read_int32(in);
}

static void put(writer *out, const void *bytes, size_t size) {
    if (out->size + size > out->room) {
        out->room = 2 * (out->size + size);
        out->data = realloc(out->data, out->room);
        if (!out->data) abort();
    }
    memcpy(out->data + out->size, bytes, size);
    out->size += size;
}

static void put_int32(writer *out, int32_t value) {
    uint32_t bytes = htobe32((uint32_t)value);
    put(out, &bytes, 4);
}

static void put_count(writer *out, int32_t count, int compact) {
    if (!compact) {
        put_int32(out, count);
        return;
    }
    uint32_t rest = (uint32_t)count + 1;
    uint8_t byte;
    for (; rest >= 0x80; rest >>= 7) {
        byte = (uint8_t)(rest | 0x80);
        put(out, &byte, 1);
    }
    byte = (uint8_t)rest;
    put(out, &byte, 1);
}

/* Count the batches of one partition. */
static void count_batches(const uint8_t *at, int64_t size, sink_counts *counts) {
    while (size >= BATCH_HEADER) {
        uint32_t length, records;
        uint16_t attributes;
        memcpy(&length, at + 8, 4);
        memcpy(&attributes, at + 21, 2);
        memcpy(&records, at + 57, 4);
        int64_t whole = (int64_t)be32toh(length) + 12;
        if (at[16] != 2 || whole > size || whole < BATCH_HEADER) break;
        counts->records += be32toh(records);
        counts->batches += 1;
        counts->batch_bytes += whole;
        counts->batches_by_codec[be16toh(attributes) & 7] += 1;
        counts->idempotent_batches += !(at[43] & 0x80); /* a producer id that is not -1 */
        at += whole;
        size -= whole;
    }
    if (size) counts->malformed += 1;
}

static void answer_partition(reader *in, writer *out, int version, sink_counts *counts) {
    static const uint8_t nothing[8] = {0};
    static const uint8_t all_ones[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    int compact = version >= COMPACT_VERSION;
    put_int32(out, read_int32(in));
    int32_t size = read_count(in, compact);
    const uint8_t *records = take(in, size < 0 ? 0 : (size_t)size);
    if (records && size > 0) count_batches(records, size, counts);
    if (compact) take(in, 1);     /* tags */
    put(out, nothing, 2);         /* error code */
    put(out, nothing, 8);         /* base offset */
    put(out, all_ones, 8);        /* log append time */
    if (version >= START_OFFSET_VERSION) put(out, nothing, 8);
    if (version >= RECORD_ERRORS_VERSION) {
        put_count(out, 0, compact);
        put(out, compact ? nothing : all_ones, compact ? 1 : 2); /* error message: null */
    }
    if (compact) put(out, nothing, 1);
}

/* Append the acknowledgement of one Produce request to `out`; 0 when it makes no sense. */
static int answer_produce(reader *in, writer *out, int version, sink_counts *counts) {
    int compact = version >= COMPACT_VERSION;
    size_t begun = out->size;
    put_int32(out, 0);
    put_int32(out, read_int32(in)); /* correlation id */
    if (compact) put(out, "", 1);
    int16_t name = read_int16(in);  /* client id: classic in every version of the header */
    take(in, name < 0 ? 0 : (size_t)name);
    if (compact) take(in, 1);
    int32_t transaction = compact ? read_uvarint(in) - 1 : read_int16(in);
    take(in, transaction < 0 ? 0 : (size_t)transaction);
    int16_t acks = read_int16(in);
    read_int32(in); /* timeout */
    int32_t topics = read_count(in, compact);
    put_count(out, topics, compact);
    for (int32_t t = 0; t < topics && !in->bad; t++) {
        const uint8_t *from = in->at;
        int32_t length = compact ? read_uvarint(in) - 1 : read_int16(in);
        take(in, length < 0 ? 0 : (size_t)length);
        if (in->bad) break;
        put(out, from, (size_t)(in->at - from)); /* the topic's name as it came */
        int32_t partitions = read_count(in, compact);
        put_count(out, partitions, compact);
        for (int32_t p = 0; p < partitions && !in->bad; p++)
            answer_partition(in, out, version, counts);
        if (compact) {
            take(in, 1);
            put(out, "", 1);
        }
    }
    put_int32(out, 0); /* throttle time */
    if (compact) put(out, "", 1);
    counts->requests += 1;
    uint32_t size = htobe32((uint32_t)(out->size - begun - 4));
    memcpy(out->data + begun, &size, 4);
    if (acks == 0) out->size = begun;
    return !in->bad;
}

/* Answer one frame; 0 when the connection is to be closed. */
static int answer(
    const uint8_t *frame, int32_t size, writer *out, answer_t other, sink_counts *counts
) {
    reader in = {frame, frame + size, 0};
    int16_t api = read_int16(&in), version = read_int16(&in);
    if (in.bad) return 0;
    if (api == PRODUCE)
        return version >= FIRST_VERSION && version <= COMPACT_VERSION
            && answer_produce(&in, out, version, counts);
    uint8_t *room = malloc(ANSWER_ROOM);
    int64_t taken = room ? other(frame, size, room, ANSWER_ROOM) : -1;
    if (taken > 0) put(out, room, (size_t)taken);
    free(room);
    return taken > 0;
}

#ifdef SINK_TLS

static SSL_CTX *context;

/* Serve TLS 1.3 only, with that cipher and what is in the file; 0 when OpenSSL refuses that. */
int sink_tls(const char *pem, const char *cipher) {
    context = SSL_CTX_new(TLS_server_method());
    if (!context) return 0;
    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, 256 << 10); /* of one system call */
    return SSL_CTX_set_ciphersuites(context, cipher) == 1
        && SSL_CTX_use_certificate_chain_file(context, pem) == 1
        && SSL_CTX_use_PrivateKey_file(context, pem, SSL_FILETYPE_PEM) == 1;
}

/* Bytes read, 0 when there are none now, -1 at the end. */
static ssize_t receive(peer *from) {
    int got = SSL_read(from->tls, from->data + from->end, (int)(from->room - from->end));
    if (got > 0) return got;
    int error = SSL_get_error(from->tls, got);
    return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? 0 : -1;
}

static int more_at_hand(peer *from) { return SSL_has_pending(from->tls); }

static int send_all(peer *to, const uint8_t *data, size_t size) {
    while (size) {
        int sent = SSL_write(to->tls, data, (int)size);
        if (sent <= 0) {
            if (SSL_get_error(to->tls, sent) != SSL_ERROR_WANT_WRITE) return 0;
            struct pollfd room = {.fd = to->fd, .events = POLLOUT};
            (void)poll(&room, 1, -1);
            continue;
        }
        data += sent;
        size -= (size_t)sent;
    }
    return 1;
}

static void begin_tls(peer *one) {
    one->tls = SSL_new(context);
    if (!one->tls || !SSL_set_fd(one->tls, one->fd)) abort();
    SSL_set_accept_state(one->tls);
}

static void end_tls(peer *one) { SSL_free(one->tls); }

#else

static ssize_t receive(peer *from) {
    ssize_t got = recv(from->fd, from->data + from->end, from->room - from->end, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    return got > 0 ? got : -1;
}

static int more_at_hand(peer *from) {
    (void)from;
    return 0;
}

static void begin_tls(peer *one) { (void)one; }

static void end_tls(peer *one) { (void)one; }

static int send_all(peer *to, const uint8_t *data, size_t size) {
    while (size) {
        ssize_t sent = send(to->fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return 0;
        data += sent;
        size -= (size_t)sent;
    }
    return 1;
}

#endif

/* Make room for the rest of the frame that begins at `start`, or for more to read. */
static int make_room(peer *from, size_t wanted) {
    if (from->start == from->end) from->start = from->end = 0;
    if (wanted <= from->room - from->start && from->end < from->room) return 1;
    memmove(from->data, from->data + from->start, from->end - from->start);
    from->end -= from->start;
    from->start = 0;
    if (wanted <= from->room && from->end < from->room) return 1;
    size_t room = wanted > 2 * from->room ? wanted : 2 * from->room;
    uint8_t *data = realloc(from->data, room);
    if (!data) return 0;
    from->data = data;
    from->room = room;
    return 1;
}

/* Answer every whole frame that was read; 0 when the connection is to be closed. */
static int answer_frames(peer *from, writer *out, answer_t other, sink_counts *counts) {
    out->size = 0;
    size_t wanted = 4;
    while (from->end - from->start >= 4) {
        uint32_t size;
        memcpy(&size, from->data + from->start, 4);
        wanted = 4 + (size_t)be32toh(size);
        if (wanted - 4 > INT32_MAX) return 0;
        if (from->end - from->start < wanted) break;
        const uint8_t *frame = from->data + from->start + 4;
        if (!answer(frame, (int32_t)(wanted - 4), out, other, counts)) return 0;
        from->start += wanted;
        wanted = 4;
    }
    return send_all(from, out->data, out->size) && make_room(from, wanted);
}

/* Read what is there, answer it; 0 when the connection has ended or is to be closed. */
static int serve_peer(peer *from, writer *out, answer_t other, sink_counts *counts) {
    do {
        ssize_t got = receive(from);
        if (got <= 0) return got == 0;
        from->end += (size_t)got;
        if (!answer_frames(from, out, other, counts)) return 0;
    } while (more_at_hand(from));
    return 1;
}

static void welcome(int listener, int poll, sink_counts *counts) {
#ifdef SINK_TLS
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK), on = 1;
#else
    int fd = accept(listener, NULL, NULL), on = 1;
#endif
    if (fd < 0) return;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    peer *one = calloc(1, sizeof *one);
    if (one) one->data = malloc(ROOM);
    if (!one || !one->data) abort();
    one->fd = fd;
    one->room = ROOM;
    begin_tls(one);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = one};
    epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event);
    counts->connections += 1;
}

/* Serve every connection to `listener` until the process ends; -errno when that cannot be. */
int sink_serve(int listener, answer_t other, sink_counts *counts) {
    int poll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event events[EVENTS], event = {.events = EPOLLIN, .data.ptr = NULL};
    writer out = {NULL, 0, 0};
    put(&out, "", 1);
    if (poll < 0 || epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event) < 0) return -errno;
    for (;;) {
        int ready = epoll_wait(poll, events, EVENTS, -1);
        if (ready < 0 && errno != EINTR) return -errno;
        for (int i = 0; i < ready; i++) {
            peer *from = events[i].data.ptr;
            if (!from) {
                welcome(listener, poll, counts);
            } else if (!serve_peer(from, &out, other, counts)) {
                end_tls(from);
                close(from->fd);
                free(from->data);
                free(from);
            }
        }
    }
}
