/* The load generator, compiled: sends prebuilt requests over many sockets and knows where each reply ends.

   generator          reads a job from standard input, then a line per round (seconds to run, requests a second),
                      and answers each with a line of JSON, as generator.py does; `compiled.py` writes the job.
                      With 0 requests a second, a connection sends when it has its reply; otherwise requests are
                      due at fixed times, and are late from then on, whether or not a connection was free
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

enum { BUFFER = 1 << 20, EVENTS = 256, PATIENCE_S = 30, TAIL = 64 };

typedef struct {
    char *data, *end; /* `end`: with mode 's', what the last bytes of the reply are */
    size_t size;
    char mode;   /* 'h': Content-Length; 'l': lines; 's': the last bytes */
    long amount; /* of lines, or of bytes in `end` */
} Request;

typedef struct {
    int fd;
    Request *requests, *current;
    int count, next;
    long missing; /* bytes or lines of the reply still to come; -1: not known yet */
    char tail[TAIL]; /* with mode 's', the last bytes that came; with 'l', of a line that has not ended */
    size_t tail_size;
    int is_awaited; /* its reply: until then, nothing of one may come */
    double due;
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

static void send_next(Connection *c) {
    c->current = &c->requests[c->next];
    c->next = (c->next + 1) % c->count;
    c->missing = -1;
    c->is_awaited = 1;
    if (c->current->mode == 's') c->tail_size = 0;
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

static int is_end(Connection *c, ssize_t size) {
    Request *r = c->current;
    if (r->mode == 's') return ends_with(c, size, r->end, r->amount);
    if (r->mode == 'l') {
        if (c->missing < 0) c->missing = r->amount;
        c->missing -= lines_of_reply(c, size);
        if (c->missing < 0) {
            fprintf(stderr, "generator: %.300s\n", buffer);
            fail("a reply is longer than it should be");
        }
        if (buffer[0] == '-' || strstr(buffer, "\"error\"")) fail(buffer);
        return !c->missing;
    }
    if (c->missing < 0) {
        if (strncmp(buffer, "HTTP/1.1 20", 11)) fail(buffer);
        char *head = strstr(buffer, "\r\n\r\n"), *length = strcasestr(buffer, "\r\ncontent-length:");
        if (!head || !length || length > head) fail("a reply without its length, or with its head in pieces");
        c->missing = head + 4 - buffer + atol(length + 17);
    }
    c->missing -= size;
    return !c->missing;
}

/* Whether these bytes are the last of the reply that the connection waits for. */
static int is_complete(Connection *c, ssize_t size) {
    if (size <= 0) fail("the connection was closed");
    buffer[size] = 0;
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

static void run_round(Connection *connections, int count, int poll, double seconds) {
    struct epoll_event ready[EVENTS];
    long replies = 0, bytes = 0;
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
                replies++;
                send_next(c);
            }
        }
    }
    printf("{\"replies\":%ld,\"seconds\":%.6f,\"reply_bytes\":%ld}\n", replies, ended - started, bytes);
    fflush(stdout);
}

static int ascending(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
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
    double ended = now();
    qsort(late, wanted, sizeof *late, ascending);
    printf("{\"replies\":%ld,\"seconds\":%.6f,\"reply_bytes\":0,\"late_ms\":[%.4f,%.4f,%.4f]}\n", done,
           ended - started, late[wanted / 2] * 1e3, late[(long)(wanted * 0.99)] * 1e3,
           late[(long)(wanted * 0.999)] * 1e3);
    fflush(stdout);
    free(late);
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
        if (scanf("%d %d", &c->count, &greetings) != 2) fail("the job ends early");
        c->fd = dial(host, port);
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
            if (scanf(" %c %ld %zu", &r->mode, &r->amount, &r->size) != 3) fail("the job ends early");
            getchar();
            r->data = take(r->size);
            r->end = r->mode == 's' ? take(r->amount) : NULL;
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
