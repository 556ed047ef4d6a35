/* The load generator, compiled: sends prebuilt requests over many sockets and knows where each reply ends.

   generator          reads a job from standard input, then a line per round (seconds to run, requests a second),
                      and answers each with a line of JSON, as generator.py does; `compiled.py` writes the job.
                      With 0 requests a second, a connection sends when it has its reply; otherwise requests are
                      due at fixed times, and are late from then on, whether or not a connection was free.
                      In a request, 16 '@' in a row are replaced by a number in hexadecimal digits that is sent once
                      only, and 4 bytes 0xff by the next stream id of HTTP/2
   generator answer   listens, prints its port, and answers whatever comes with one short HTTP reply: what the
                      generator reaches against it is the generator's own ceiling */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 20, EVENTS = 256, PATIENCE_S = 30, TAIL = 64, DIGITS = 16, STREAM_ID = 4, CHECKED = 16 };

typedef struct {
    char *data, *end; /* `end`: with mode 's', the last bytes of the reply; with 'h', the first bytes of each reply;
                         with 'f' and 'w', bytes near the start of the reply */
    size_t size, end_size;
    char mode;   /* 'h': Content-Length; 'l': lines; 's': the last bytes; 'f': HTTP/2 frames; 'w': WebSocket frames */
    long amount; /* of lines, or of replies with mode 'h' */
    char **numbers, **streams; /* the places in `data` that change with each sending */
    int number_count, stream_count;
} Request;

typedef struct {
    int fd;
    Request *requests, *current;
    int count, next, repeated; /* requests; those before `repeated` are sent once */
    long missing; /* bytes or lines of the reply still to come; -1: not known yet */
    char tail[TAIL]; /* with mode 's', the last bytes that came; with 'l', of a line that has not ended */
    size_t tail_size;
    int is_awaited; /* its reply: until then, nothing of one may come */
    double due, sent_at;
    long replies_left; /* with mode 'h': one request may hold several */
    size_t payload_left; /* of the frame that is being read */
    int payload_is_new, frame_is_last;
    unsigned stream;
} Connection;

static char buffer[BUFFER + 1];

static void fail(const char *why) {
    fprintf(stderr, "generator: %s\n", why);
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t sent = write(fd, data, size);
        if (sent <= 0) fail("could not send");
        data += sent;
        size -= sent;
    }
}

static int dial(const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, port, &hints, &found)) fail("no such host");
    int fd = socket(found->ai_family, SOCK_STREAM, 0), one = 1;
    if (fd < 0 || connect(fd, found->ai_addr, found->ai_addrlen)) fail("could not connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    freeaddrinfo(found);
    return fd;
}

static char *take(size_t size) {
    char *data = malloc(size + 1);
    if (!data || fread(data, 1, size, stdin) != size) fail("the job ends early");
    data[size] = 0;
    return data;
}

/* All places of `size` bytes, each of them `byte`. */
static char **places(Request *r, int byte, size_t size, int *count) {
    char **found = NULL, *end = r->data + r->size;
    char mark[DIGITS];
    memset(mark, byte, size);
    for (char *at = r->data; (at = memmem(at, end - at, mark, size)); at += size) {
        found = realloc(found, (*count + 1) * sizeof *found);
        found[(*count)++] = at;
    }
    return found;
}

static void fill_in(Connection *c, Request *r) {
    static unsigned long number;
    /* Microseconds: a later process does not repeat the numbers of this one. */
    if (!number) number = now() * 1e6;
    for (int i = 0; i < r->number_count; i++) {
        unsigned long left = number++;
        for (int digit = DIGITS; digit--; left >>= 4) r->numbers[i][digit] = "0123456789abcdef"[left & 15];
    }
    if (!r->stream_count) return;
    unsigned id = htonl(c->stream);
    c->stream += 2;
    for (int i = 0; i < r->stream_count; i++) memcpy(r->streams[i], &id, STREAM_ID);
}

static void send_next(Connection *c) {
    c->current = &c->requests[c->next];
    c->next = c->next + 1 < c->count ? c->next + 1 : c->repeated;
    c->missing = -1;
    c->replies_left = c->current->amount;
    c->is_awaited = 1;
    if (c->current->mode == 's') c->tail_size = 0;
    fill_in(c, c->current);
    c->sent_at = now();
    send_all(c->fd, c->current->data, c->current->size);
}

/* Whether the last bytes that came are those; they may have come in pieces. */
static int ends_with(Connection *c, ssize_t size, const char *end, size_t end_size) {
    size_t kept = size < TAIL ? (size_t)size : TAIL;
    if (kept < TAIL) {
        size_t before = c->tail_size < TAIL - kept ? c->tail_size : TAIL - kept;
        memmove(c->tail, c->tail + c->tail_size - before, before);
        c->tail_size = before;
    } else {
        c->tail_size = 0;
    }
    memcpy(c->tail + c->tail_size, buffer + size - kept, kept);
    c->tail_size += kept;
    return c->tail_size >= end_size && !memcmp(c->tail + c->tail_size - end_size, end, end_size);
}

/* How many of the lines that end in these bytes belong to a reply. NATS asks "PING" now and then, in between, and that
   may have come in pieces. */
static long lines_of_reply(Connection *c, ssize_t size) {
    static const char ping[] = "PING\r";
    const char *line = buffer, *end;
    long lines = 0;
    for (; (end = memchr(line, '\n', buffer + size - line)); line = end + 1) {
        size_t before = c->tail_size, piece = end - line;
        lines += before + piece != 5 || memcmp(c->tail, ping, before) || memcmp(line, ping + before, piece);
        c->tail_size = 0;
    }
    size_t rest = buffer + size - line;
    if (rest > TAIL - c->tail_size) rest = TAIL - c->tail_size; /* no longer one of those */
    memcpy(c->tail + c->tail_size, line, rest);
    c->tail_size += rest;
    return lines;
}

/* Replies of HTTP/1.1, as many as the request asked for. */
static int http_is_over(Connection *c, ssize_t size) {
    for (char *at = buffer, *stop = buffer + size; at < stop;) {
        if (c->missing < 0) {
            if (!c->replies_left) fail("more replies came than were asked for");
            if (strncmp(at, c->current->end, c->current->end_size)) fail(at);
            char *head = strstr(at, "\r\n\r\n"), *length = strcasestr(at, "\r\ncontent-length:");
            if (!head || !length || length > head) fail("a reply without its length, or with its head in pieces");
            c->missing = head + 4 - at + atol(length + 17);
        }
        long here = stop - at < c->missing ? stop - at : c->missing;
        at += here;
        c->missing -= here;
        if (c->missing) continue;
        c->missing = -1;
        c->replies_left--;
    }
    return !c->replies_left && c->missing < 0;
}

/* Takes the head of a frame, which may come in pieces; returns how many bytes of it were taken. */
static size_t take_frame_head(Connection *c, const char *at, size_t size) {
    unsigned char *head = (unsigned char *)c->tail;
    int is_http2 = c->current->mode == 'f';
    size_t taken = 0, wanted = is_http2 ? 9 : 2;
    while (taken < size && c->tail_size < wanted) {
        head[c->tail_size++] = at[taken++];
        if (!is_http2 && c->tail_size == 2 && head[1] == 126) wanted = 4;
    }
    if (!is_http2 && c->tail_size >= 2 && head[1] == 126) wanted = 4;
    if (c->tail_size < wanted) return taken;
    c->tail_size = 0;
    if (is_http2) {
        int kind = head[3];
        if (kind == 3 || kind == 7) fail("a stream or a connection of HTTP/2 was ended");
        c->payload_left = head[0] << 16 | head[1] << 8 | head[2];
        c->frame_is_last = kind <= 1 && head[4] & 1;
        c->payload_is_new = kind == 1;
    } else {
        if (head[0] != 0x81 || head[1] > 126) fail("an unexpected frame of a WebSocket");
        c->payload_left = wanted == 4 ? head[2] << 8 | head[3] : head[1];
        c->frame_is_last = c->payload_is_new = 1;
    }
    return taken;
}

/* Whether the reply ends here. Frames that belong to no reply, such as those that open a window, are skipped. */
static int frames_are_over(Connection *c, ssize_t size) {
    int is_over = 0;
    for (char *at = buffer, *stop = buffer + size; at < stop;) {
        if (!c->payload_left) {
            at += take_frame_head(c, at, stop - at);
            if (c->tail_size || c->payload_left) continue;
        }
        size_t here = (size_t)(stop - at) < c->payload_left ? (size_t)(stop - at) : c->payload_left;
        if (c->payload_is_new && here) {
            size_t checked = here < CHECKED ? here : CHECKED;
            if (!memmem(at, checked, c->current->end, c->current->end_size)) fail("a request has failed");
            c->payload_is_new = 0;
        }
        at += here;
        c->payload_left -= here;
        if (!c->payload_left && c->frame_is_last) {
            if (is_over || !c->is_awaited) fail("something came that was not asked for");
            is_over = 1;
            c->frame_is_last = 0;
        }
    }
    return is_over;
}

static int is_end(Connection *c, ssize_t size) {
    Request *r = c->current;
    if (r->mode == 'h') return http_is_over(c, size);
    if (r->mode == 's') return ends_with(c, size, r->end, r->end_size);
    if (c->missing < 0) c->missing = r->amount;
    c->missing -= lines_of_reply(c, size);
    if (c->missing < 0) {
        fprintf(stderr, "generator: %.300s\n", buffer);
        fail("a reply is longer than it should be");
    }
    if (buffer[0] == '-' || strstr(buffer, "\"error\"")) fail(buffer);
    return !c->missing;
}

/* Whether these bytes are the last of the reply that the connection waits for. */
static int is_complete(Connection *c, ssize_t size) {
    if (size <= 0) fail("the connection was closed");
    buffer[size] = 0;
    if (c->current && strchr("fw", c->current->mode)) {
        int frames = frames_are_over(c, size);
        if (frames) c->is_awaited = 0;
        return frames;
    }
    if (!c->is_awaited) {
        if (lines_of_reply(c, size)) fail("something came that was not asked for");
        return 0;
    }
    int is_over = is_end(c, size);
    c->is_awaited = !is_over;
    return is_over;
}

/* Says something first, and waits until the answer ends. */
static void greet(int fd, const char *greeting, size_t size, const char *end, size_t end_size) {
    Connection c = {.fd = fd};
    send_all(fd, greeting, size);
    for (;;) {
        ssize_t got = read(fd, buffer, BUFFER);
        if (got <= 0) fail("the greeting was not answered");
        if (ends_with(&c, got, end, end_size)) return;
    }
}

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* `late`: how long each reply took, or was late. */
static void tell(long replies, double seconds, long bytes, double *late) {
    qsort(late, replies, sizeof *late, ascending);
    printf("{\"replies\":%ld,\"seconds\":%.6f,\"reply_bytes\":%ld,\"late_ms\":[%.4f,%.4f,%.4f]}\n", replies, seconds,
           bytes, late[replies / 2] * 1e3, late[(long)(replies * 0.99)] * 1e3, late[(long)(replies * 0.999)] * 1e3);
    fflush(stdout);
    free(late);
}

static void run_round(Connection *connections, int count, int poll, double seconds) {
    struct epoll_event ready[EVENTS];
    long replies = 0, bytes = 0, room = 1 << 16;
    double *late = malloc(room * sizeof *late);
    double started = now(), deadline = started + seconds, ended = 0;
    for (int i = 0; i < count; i++) send_next(&connections[i]);
    int under_way = count;
    while (under_way) {
        double at = now();
        int is_over = at >= deadline && replies;
        if (is_over && !ended) ended = at;
        if (at > deadline + PATIENCE_S) fail("no reply came");
        int n = epoll_wait(poll, ready, EVENTS, 50);
        for (int i = 0; i < n; i++) {
            Connection *c = ready[i].data.ptr;
            ssize_t size = read(c->fd, buffer, BUFFER);
            if (!is_over) bytes += size;
            if (!is_complete(c, size)) continue;
            if (is_over) {
                under_way--; /* asked before the deadline and answered after it: of no round */
            } else {
                if (replies == room) late = realloc(late, (room *= 2) * sizeof *late);
                late[replies++] = now() - c->sent_at;
                send_next(c);
            }
        }
    }
    tell(replies, ended - started, bytes, late);
}

static void run_paced(Connection *connections, int count, int poll, double seconds, double rate) {
    struct epoll_event ready[EVENTS];
    long wanted = seconds * rate + 1, sent = 0, done = 0;
    double *late = malloc(wanted * sizeof *late), started = now();
    Connection **idle = malloc(count * sizeof *idle); /* a ring: whoever has waited longest is next */
    int first_free = 0, free_count = count;
    for (int i = 0; i < count; i++) idle[i] = &connections[i];
    while (done < wanted) {
        double at = now();
        if (at > started + seconds + PATIENCE_S) fail("no reply came");
        while (sent < wanted && free_count && started + sent / rate <= at) {
            Connection *c = idle[first_free];
            first_free = (first_free + 1) % count;
            free_count--;
            c->due = started + sent++ / rate;
            send_next(c);
        }
        int is_soon = sent < wanted && free_count && started + sent / rate - at < 0.001;
        int n = epoll_wait(poll, ready, EVENTS, is_soon ? 0 : 1);
        for (int i = 0; i < n; i++) {
            Connection *c = ready[i].data.ptr;
            if (!is_complete(c, read(c->fd, buffer, BUFFER))) continue;
            late[done++] = now() - c->due;
            idle[(first_free + free_count++) % count] = c;
        }
    }
    tell(done, now() - started, 0, late);
    free(idle);
}

static int generate(void) {
    char host[256], port[16];
    int count, greetings;
    if (scanf("%255s %15s %d", host, port, &count) != 3) fail("no job");
    Connection *connections = calloc(count, sizeof *connections);
    int poll = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        Connection *c = &connections[i];
        if (scanf("%d %d %d", &c->count, &c->repeated, &greetings) != 3) fail("the job ends early");
        c->fd = dial(host, port);
        c->stream = 1;
        while (greetings--) {
            size_t size, end_size;
            if (scanf("%zu %zu", &size, &end_size) != 2) fail("the job ends early");
            getchar();
            char *greeting = take(size), *end = take(end_size);
            greet(c->fd, greeting, size, end, end_size);
            free(greeting);
            free(end);
        }
        c->requests = calloc(c->count, sizeof *c->requests);
        for (int k = 0; k < c->count; k++) {
            Request *r = &c->requests[k];
            if (scanf(" %c %ld %zu %zu", &r->mode, &r->amount, &r->size, &r->end_size) != 4)
                fail("the job ends early");
            getchar();
            r->data = take(r->size);
            r->end = take(r->end_size);
            r->numbers = places(r, '@', DIGITS, &r->number_count);
            r->streams = places(r, 0xff, STREAM_ID, &r->stream_count);
        }
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
    }
    double seconds, rate;
    while (scanf("%lf %lf", &seconds, &rate) == 2) {
        if (rate > 0) run_paced(connections, count, poll, seconds, rate);
        else run_round(connections, count, poll, seconds);
    }
    return 0;
}

static void answer(void) {
    static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1, poll = epoll_create1(0);
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 256)) fail("could not listen");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener}, ready[EVENTS];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int n = epoll_wait(poll, ready, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                event.data.fd = accept(listener, NULL, NULL);
                setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                epoll_ctl(poll, EPOLL_CTL_ADD, event.data.fd, &event);
            } else if (read(fd, buffer, BUFFER) <= 0) {
                close(fd);
            } else {
                send_all(fd, reply, sizeof reply - 1);
            }
        }
    }
}

int main(int count, char **words) {
    if (count > 1 && !strcmp(words[1], "answer")) answer();
    return generate();
}
