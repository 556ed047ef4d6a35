/* Many sockets read, and many answers sent, in one call each: `http/wire/crowd.py` says whose they are.
 *
 * Here it is only found out whether a request is byte for byte one that is known, on a connection that has nothing
 * else under way. All other input is handed over as it came, and where a socket has ended, or something is wrong with
 * it, it is given back to the loop, which will see the same. Nothing here waits.
 */
#include "accelerator.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* So many sockets in one call: then it is the turn of others. As much of each as the loop would read at once. */
enum { MOST_SOCKETS = 256, BUFFER_BYTES = 256000 };

enum { MODE, BEHIND, BEGUN, CURRENT, WRITE_PAUSED, REQUESTS, UNKNOWN_HEADS, TRANSPORT, DESCRIPTOR, CONNECTION_SLOTS };
static const char *const connection_slots[] = {"mode",      "_behind",        "_begun",    "_current",  "_write_paused",
                                               "_requests", "_unknown_heads", "transport", "descriptor"};
enum { CONVOYS, NAME, KEY, BODY_BYTES, KNOWN_SLOTS };
static const char *const known_slots[] = {"convoys", "name", "key", "body_bytes"};
enum { TOPIC_ID, NAME_JSON, TOPIC_SLOTS };
static const char *const topic_slots[] = {"id", "name_json"};

/* Heads that have come of late, each with the request that it belongs to. Those with an idempotency key are kept
 * without it, and where its line was. */
enum { LATELY = 64, MIXED_WORDS = 8, NO_KEY = -1 };
typedef struct {
    PyObject *head, *known;
    Py_ssize_t key_at;
} Late;

/* --- the sockets ---------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    int poll;
    PyTypeObject *connection_type, *known_type, *topic_type;
    Py_ssize_t of_connection[CONNECTION_SLOTS], of_known[KNOWN_SLOTS], of_topic[TOPIC_SLOTS];
    /* Of the requests that are known, which are never replaced by others in one and the same dictionary. */
    PyObject *heads;
    Late late[LATELY];
    /* The connection of each descriptor, or NULL. */
    PyObject **seats;
    long room;
    PyObject *is_closing, *get_write_buffer_size, *write;
    char *buffer;
} Sockets;

#define OF(connection, name) SLOT(connection, self->of_connection[name])

static void let_all_go(Sockets *self) {
    long room = self->room;
    PyObject **seats = self->seats;
    self->seats = NULL;
    self->room = 0;
    for (long i = 0; i < room; i++) Py_XDECREF(seats[i]);
    PyMem_Free(seats);
    if (self->poll >= 0) close(self->poll);
    self->poll = -1;
}

static void forget_heads(Sockets *self) {
    for (int i = 0; i < LATELY; i++) {
        Py_CLEAR(self->late[i].head);
        Py_CLEAR(self->late[i].known);
    }
    Py_CLEAR(self->heads);
}

static void sockets_dealloc(PyObject *object) {
    Sockets *self = (Sockets *)object;
    let_all_go(self);
    forget_heads(self);
    Py_XDECREF(self->topic_type);
    Py_XDECREF(self->connection_type);
    Py_XDECREF(self->known_type);
    Py_XDECREF(self->is_closing);
    Py_XDECREF(self->get_write_buffer_size);
    Py_XDECREF(self->write);
    PyMem_Free(self->buffer);
    PyObject_Free(object);
}

/* Sockets(type of connections, type of known requests, type of topics) */
static PyObject *sockets_new(PyTypeObject *type, PyObject *args, PyObject *unused) {
    PyTypeObject *connection_type, *known_type, *topic_type;
    if (!PyArg_ParseTuple(args, "O!O!O!:Sockets", &PyType_Type, &connection_type, &PyType_Type, &known_type,
                          &PyType_Type, &topic_type))
        return NULL;
    Sockets *self = PyObject_New(Sockets, type);
    if (!self) return NULL;
    memset((char *)self + offsetof(Sockets, poll), 0, sizeof(Sockets) - offsetof(Sockets, poll));
    self->poll = epoll_create1(EPOLL_CLOEXEC);
    if (self->poll < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        goto failed;
    }
    self->connection_type = (PyTypeObject *)Py_NewRef(connection_type);
    self->known_type = (PyTypeObject *)Py_NewRef(known_type);
    self->topic_type = (PyTypeObject *)Py_NewRef(topic_type);
    self->is_closing = PyUnicode_InternFromString("is_closing");
    self->get_write_buffer_size = PyUnicode_InternFromString("get_write_buffer_size");
    self->write = PyUnicode_InternFromString("write");
    self->buffer = PyMem_Malloc(BUFFER_BYTES);
    if (!self->buffer) PyErr_NoMemory();
    if (PyErr_Occurred() || !find_slots(connection_type, connection_slots, CONNECTION_SLOTS, self->of_connection) ||
        !find_slots(known_type, known_slots, KNOWN_SLOTS, self->of_known) ||
        !find_slots(topic_type, topic_slots, TOPIC_SLOTS, self->of_topic))
        goto failed;
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static PyObject *sockets_fileno(PyObject *self, PyObject *unused) { return PyLong_FromLong(((Sockets *)self)->poll); }

static PyObject *sockets_close(PyObject *self, PyObject *unused) {
    let_all_go((Sockets *)self);
    forget_heads((Sockets *)self);
    Py_RETURN_NONE;
}

/* The descriptor of a connection that has its seat here; -1 if it has none. */
static long seat_of(Sockets *self, PyObject *connection) {
    if (!Py_IS_TYPE(connection, self->connection_type)) return -1;
    long fd = number_in(OF(connection, DESCRIPTOR));
    return fd >= 0 && fd < self->room && self->seats[fd] == connection ? fd : -1;
}

/* add(connection): its socket, the number of which it has as `descriptor`, is read here from now on */
static PyObject *sockets_add(PyObject *object, PyObject *connection) {
    Sockets *self = (Sockets *)object;
    if (!Py_IS_TYPE(connection, self->connection_type)) {
        PyErr_SetString(PyExc_TypeError, "add(connection)");
        return NULL;
    }
    long fd = number_in(OF(connection, DESCRIPTOR));
    if (fd < 0 || fd > INT32_MAX / 2 || (fd < self->room && self->seats[fd])) {
        PyErr_SetString(PyExc_ValueError, "this is no descriptor, or that of another connection");
        return NULL;
    }
    if (fd >= self->room) {
        long room = 2 * fd + 16;
        PyObject **larger = PyMem_Realloc(self->seats, sizeof(PyObject *) * room);
        if (!larger) return PyErr_NoMemory();
        memset(larger + self->room, 0, sizeof(PyObject *) * (room - self->room));
        self->seats = larger;
        self->room = room;
    }
    /* Told once when something comes, not as long as it is there: all of it is read, or the loop reads the rest. */
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | EPOLLET, .data.fd = (int)fd};
    if (epoll_ctl(self->poll, EPOLL_CTL_ADD, (int)fd, &event)) return PyErr_SetFromErrno(PyExc_OSError);
    self->seats[fd] = Py_NewRef(connection);
    Py_RETURN_NONE;
}

/* remove(connection): if it is here */
static PyObject *sockets_remove(PyObject *object, PyObject *connection) {
    Sockets *self = (Sockets *)object;
    long fd = seat_of(self, connection);
    if (fd >= 0) {
        struct epoll_event event = {0};
        epoll_ctl(self->poll, EPOLL_CTL_DEL, (int)fd, &event);
        put(&self->seats[fd], NULL);
    }
    Py_RETURN_NONE;
}

/* --- reading -------------------------------------------------------------------------------------------------- */

/* What its transport says: whether it is closing, how much it has to send. -1 if it raises. */
static long ask(PyObject *transport, PyObject *method) {
    PyObject *answer = transport ? PyObject_VectorcallMethod(method, &transport, 1, NULL) : NULL;
    if (!answer) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_AttributeError, "transport");
        return -1;
    }
    long told = answer == Py_True ? 1 : answer == Py_False ? 0 : PyLong_AsLong(answer);
    Py_DECREF(answer);
    return told;
}

/* What was read of one socket, if nothing about it can be refused before its body is looked at. */
typedef struct {
    /* The request that it is like, borrowed, or NULL. */
    PyObject *known;
    /* Where its head ends; its idempotency key, if it has one. */
    Py_ssize_t end, key_bytes;
    const char *key;
} Found;

/* The place of a head among the late ones, by how it begins and how long all of its request is; NULL for a short one.
 */
static Late *late_place(Sockets *self, Py_ssize_t bytes) {
    uint64_t mixed = (uint64_t)bytes, word;
    if (bytes < (Py_ssize_t)sizeof word * MIXED_WORDS) return NULL;
    for (int i = 0; i < MIXED_WORDS; i++) {
        memcpy(&word, self->buffer + sizeof word * i, sizeof word);
        mixed = (mixed ^ word) * 0x9E3779B97F4A7C15ULL;
        mixed ^= mixed >> 32;
    }
    return &self->late[mixed % LATELY];
}

/* The request that the buffer is like, borrowed, byte for byte up to its body, but for an idempotency key; where its
 * head ends, and that key. NULL if it has not come of late. Here bytes are compared, as is never done with those of an
 * API key: such heads are not kept. */
static PyObject *lately(Sockets *self, const Late *place, Py_ssize_t bytes, Found *found) {
    if (!place || !place->head) return NULL;
    const char *head = PyBytes_AS_STRING(place->head), *from = self->buffer;
    Py_ssize_t head_bytes = PyBytes_GET_SIZE(place->head), before = place->key_at == NO_KEY ? head_bytes : place->key_at;
    if (bytes < head_bytes + 4 || memcmp(from, head, before)) return NULL;
    from += before;
    if (place->key_at != NO_KEY) {
        KeyLine line;
        const unsigned char *start = (const unsigned char *)from, *stop = (const unsigned char *)self->buffer + bytes;
        if (!key_line_at(start, stop, &line)) return NULL;
        found->key = (const char *)line.key;
        found->key_bytes = line.stop - line.key;
        from = (const char *)line.stop;
    }
    Py_ssize_t after = head_bytes - before;
    int is_it = self->buffer + bytes - from >= after + 4 && !memcmp(from, head + before, after) &&
                !memcmp(from + after, "\r\n\r\n", 4);
    found->end = from + after - self->buffer;
    return is_it ? place->known : NULL;
}

/* Looks a head up, with or without an idempotency key: a borrowed request that may travel, or NULL. */
static PyObject *look_up(Sockets *self, PyObject *heads, Late *place, Found *found) {
    KeyLine line;
    const unsigned char *start = (const unsigned char *)self->buffer;
    /* A head with an idempotency key is remembered without it. */
    int is_keyed = key_in_head(start, start + found->end, &line);
    PyObject *head = is_keyed ? head_without(start, start + found->end, &line)
                              : PyBytes_FromStringAndSize(self->buffer, found->end);
    PyObject *known = head ? PyDict_GetItemWithError(heads, head) : NULL;
    if (is_keyed) {
        found->key = (const char *)line.key;
        found->key_bytes = line.stop - line.key;
    }
    if (known && !Py_IS_TYPE(known, self->known_type)) known = NULL;
    PyObject *convoys = known ? SLOT(known, self->of_known[CONVOYS]) : NULL;
    if (!convoys || convoys == Py_None || SLOT(known, self->of_known[KEY]) != Py_None) known = NULL;
    if (known && place) {
        place->key_at = is_keyed ? line.start - start : NO_KEY;
        put(&place->head, Py_NewRef(head));
        put(&place->known, Py_NewRef(known));
    }
    Py_XDECREF(head);
    return known;
}

/* Nothing is known if there is an exception. */
static Found known_request(Sockets *self, PyObject *connection, PyObject *heads, Py_ssize_t bytes) {
    Found found = {0};
    if (OF(connection, CURRENT) != Py_None || OF(connection, BEHIND) != Py_False ||
        OF(connection, BEGUN) != Py_False || OF(connection, WRITE_PAUSED) != Py_False ||
        number_in(OF(connection, MODE)) != 0)
        return found;
    Late *place = late_place(self, bytes);
    PyObject *known = lately(self, place, bytes, &found);
    if (!known) {
        found = (Found){0};
        const char *end = memmem(self->buffer, bytes, "\r\n\r\n", 4);
        if (!end) return found;
        found.end = end - self->buffer;
        known = look_up(self, heads, place, &found);
    }
    if (known && number_in(SLOT(known, self->of_known[BODY_BYTES])) == bytes - found.end - 4) found.known = known;
    return found;
}

/* Appends a new reference, and lets go of it; 0 if that fails. */
static int append(PyObject *list, PyObject *item) {
    int failed = !item || PyList_Append(list, item);
    Py_XDECREF(item);
    return !failed;
}

/* Those who travel to the same name, all with idempotency keys or all without; borrowed. */
typedef struct {
    PyObject *convoys, *name, *connections, *bodies, *keys;
} Group;

typedef struct {
    Group all[MOST_SOCKETS];
    int count;
    /* What the caller gets: [(convoys, [(name, (connections, bodies, keys or None))])] */
    PyObject *list;
} Groups;

/* A group of its own, the first to this name; NULL if that fails. */
static Group *begin_group(Groups *groups, PyObject *convoys, PyObject *name, int is_keyed) {
    PyObject *several = NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(groups->list) && !several; i++)
        if (PyTuple_GET_ITEM(PyList_GET_ITEM(groups->list, i), 0) == convoys)
            several = PyTuple_GET_ITEM(PyList_GET_ITEM(groups->list, i), 1);
    if (!several) {
        if (!append(groups->list, Py_BuildValue("O[]", convoys))) return NULL;
        several = PyTuple_GET_ITEM(PyList_GET_ITEM(groups->list, PyList_GET_SIZE(groups->list) - 1), 1);
    }
    PyObject *connections = PyList_New(0), *bodies = PyList_New(0);
    PyObject *keys = is_keyed ? PyList_New(0) : Py_NewRef(Py_None);
    PyObject *sent = connections && bodies && keys ? PyTuple_Pack(3, connections, bodies, keys) : NULL;
    int is_in = sent && append(several, PyTuple_Pack(2, name, sent));
    Py_XDECREF(connections);
    Py_XDECREF(bodies);
    Py_XDECREF(keys);
    Py_XDECREF(sent);
    if (!is_in) return NULL;
    Group *group = &groups->all[groups->count++];
    *group = (Group){convoys, name, PyTuple_GET_ITEM(sent, 0), PyTuple_GET_ITEM(sent, 1),
                     is_keyed ? PyTuple_GET_ITEM(sent, 2) : NULL};
    return group;
}

/* It joins those who go the same way; 0 if that fails. */
static int travel(Sockets *self, Groups *groups, PyObject *connection, const Found *found, Py_ssize_t stop) {
    PyObject *convoys = SLOT(found->known, self->of_known[CONVOYS]), *name = SLOT(found->known, self->of_known[NAME]);
    PyObject *requests = PyLong_FromLong(number_in(OF(connection, REQUESTS)) + 1), *none = PyLong_FromLong(0);
    PyObject *body = PyBytes_FromStringAndSize(self->buffer + found->end + 4, stop - found->end - 4);
    PyObject *key = found->key ? PyBytes_FromStringAndSize(found->key, found->key_bytes) : NULL;
    Group *group = NULL;
    Py_ssize_t before = 0;
    int is_in = 0;
    if (!requests || !none || !body || (found->key && !key)) goto done;
    for (int i = groups->count - 1; i >= 0 && !group; i--) {
        Group *one = &groups->all[i];
        if (one->name == name && one->convoys == convoys && !one->keys == !key) group = one;
    }
    if (!group && !(group = begin_group(groups, convoys, name, key != NULL))) goto done;
    before = PyList_GET_SIZE(group->connections);
    is_in = !PyList_Append(group->connections, connection) && !PyList_Append(group->bodies, body) &&
            (!key || !PyList_Append(group->keys, key));
    if (is_in) {
        put(&OF(connection, REQUESTS), Py_NewRef(requests));
        put(&OF(connection, UNKNOWN_HEADS), Py_NewRef(none));
        put(&OF(connection, CURRENT), Py_NewRef(found->known));
    } else {
        PyObject *lists[3] = {group->connections, group->bodies, group->keys};
        for (int i = 0; i < 3; i++)
            if (lists[i]) shorten(lists[i], before);
    }
done:
    Py_XDECREF(requests);
    Py_XDECREF(none);
    Py_XDECREF(body);
    Py_XDECREF(key);
    return is_in;
}

/* One socket; 0 if that fails. */
static int receive_one(Sockets *self, PyObject *connection, int fd, uint32_t events, PyObject *heads, Groups *groups,
                       PyObject *others, PyObject *ended, PyObject *broken) {
    long is_closing = ask(OF(connection, TRANSPORT), self->is_closing);
    if (is_closing) return is_closing > 0;
    /* An error is told once, and the loop has to hear of it. */
    if (events & (EPOLLHUP | EPOLLERR)) return !PyList_Append(ended, connection);
    ssize_t bytes = recv(fd, self->buffer, BUFFER_BYTES, MSG_DONTWAIT);
    int is_over = events & EPOLLRDHUP;
    if (bytes < 0 && errno != EAGAIN && errno != EINTR) return !PyList_Append(broken, connection);
    if (bytes > 0) {
        Found found = {0};
        if (heads != Py_None) found = known_request(self, connection, heads, bytes);
        if (PyErr_Occurred()) return 0;
        if (found.known && !travel(self, groups, connection, &found, bytes)) return 0;
        if (!found.known && !append(others, Py_BuildValue("Oy#", connection, self->buffer, (Py_ssize_t)bytes))) return 0;
    }
    /* There may be more than was read. */
    is_over |= bytes == BUFFER_BYTES || !bytes || (bytes < 0 && errno == EINTR);
    return !is_over || !PyList_Append(ended, connection);
}

/* receive(heads or None) -> ([(convoys, [(name, (connections, bodies, keys or None))])], [(connection, input)],
 * [connection], [connection]): those whose requests travel; what others have sent; whose sockets the loop should read;
 * and whose are broken. Without heads, none travels. */
static PyObject *sockets_receive(PyObject *object, PyObject *heads) {
    Sockets *self = (Sockets *)object;
    struct epoll_event ready[MOST_SOCKETS];
    if (heads != Py_None && !PyDict_CheckExact(heads)) {
        PyErr_SetString(PyExc_TypeError, "receive(heads: dict | None)");
        return NULL;
    }
    if (heads != Py_None && heads != self->heads) {
        forget_heads(self);
        self->heads = Py_NewRef(heads);
    }
    Groups groups;
    groups.count = 0;
    groups.list = PyList_New(0);
    PyObject *others = PyList_New(0), *ended = PyList_New(0), *broken = PyList_New(0);
    PyObject *result = NULL;
    if (!groups.list || !others || !ended || !broken) goto done;
    int count = epoll_wait(self->poll, ready, MOST_SOCKETS, 0);
    if (count < 0 && errno != EINTR) {
        PyErr_SetFromErrno(PyExc_OSError);
        goto done;
    }
    for (int i = 0; i < count; i++) {
        int fd = ready[i].data.fd;
        if (fd >= self->room || !self->seats[fd]) continue;
        PyObject *connection = Py_NewRef(self->seats[fd]);
        int went_well = receive_one(self, connection, fd, ready[i].events, heads, &groups, others, ended, broken);
        /* There is no memory: its client finds it closed. What others have sent is not lost for that. */
        if (!went_well) {
            PyErr_Clear();
            if (PyList_Append(broken, connection)) PyErr_Clear();
        }
        Py_DECREF(connection);
    }
    result = PyTuple_Pack(4, groups.list, others, ended, broken);
done:
    Py_XDECREF(groups.list);
    Py_XDECREF(others);
    Py_XDECREF(ended);
    Py_XDECREF(broken);
    return result;
}

/* --- answering ------------------------------------------------------------------------------------------------ */

/* Writes a length, and what ends a head. */
static char *put_length(char *w, Py_ssize_t length) {
    char digits[24];
    int count = 0;
    do digits[count++] = (char)('0' + length % 10);
    while (length /= 10);
    while (count) *w++ = digits[--count];
    memcpy(w, "\r\n\r\n", 4);
    return w + 4;
}

/* The descriptor to which the usual answer may go. -1 if asking raises, 0 if this is nothing for us. */
static long may_answer(Sockets *self, PyObject *connection, Py_ssize_t bytes) {
    long fd = seat_of(self, connection), waiting;
    /* 0 is a descriptor, too, but hardly ever that of a socket. */
    if (fd <= 0 || OF(connection, BEHIND) != Py_False || bytes > BUFFER_BYTES - 32) return 0;
    PyObject *current = OF(connection, CURRENT), *transport = OF(connection, TRANSPORT);
    if (!current || !Py_IS_TYPE(current, self->known_type) || SLOT(current, self->of_known[KEY]) != Py_None) return 0;
    if ((waiting = ask(transport, self->is_closing)) || (waiting = ask(transport, self->get_write_buffer_size)))
        return waiting < 0 ? -1 : 0;
    return fd;
}

/* Sends what the socket takes of the buffer, and leaves the rest to the transport; 0 if that raises. */
static int send_answer(Sockets *self, PyObject *connection, long fd, Py_ssize_t bytes) {
    PyObject *transport = OF(connection, TRANSPORT);
    put(&OF(connection, CURRENT), Py_NewRef(Py_None));
    ssize_t sent = send((int)fd, self->buffer, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == bytes) return 1;
    if (sent < 0) sent = 0; /* whatever is wrong, the transport will find it */
    PyObject *given[2] = {transport, PyBytes_FromStringAndSize(self->buffer + sent, bytes - sent)};
    if (!given[1]) return 0;
    Py_INCREF(transport);
    PyObject *done = PyObject_VectorcallMethod(self->write, given, 2, NULL);
    Py_DECREF(transport);
    Py_DECREF(given[1]);
    Py_XDECREF(done);
    return done != NULL;
}

/* -1 if that raises, 1 if it is answered; 0 if this is nothing for us. */
static int answer_one(Sockets *self, PyObject *connection, PyObject *body, PyObject *head) {
    Py_ssize_t head_bytes = PyBytes_GET_SIZE(head), body_bytes = PyBytes_GET_SIZE(body);
    long fd = may_answer(self, connection, head_bytes + body_bytes);
    if (fd <= 0) return (int)fd;
    char *w = self->buffer;
    PUT(PyBytes_AS_STRING(head), head_bytes);
    w = put_length(w, body_bytes);
    PUT(PyBytes_AS_STRING(body), body_bytes);
    return send_answer(self, connection, fd, w - self->buffer) ? 1 : -1;
}

/* answer(asking, bodies, head) -> those that were not answered here, by their index. `head`: all of an answer up to the
 * length of its body. */
static PyObject *sockets_answer(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Sockets *self = (Sockets *)object;
    if (count != 3 || !PyList_CheckExact(given[0]) || !PyList_CheckExact(given[1]) || !PyBytes_CheckExact(given[2]) ||
        PyList_GET_SIZE(given[0]) != PyList_GET_SIZE(given[1])) {
        PyErr_SetString(PyExc_TypeError, "answer(asking: list, bodies: list[bytes], head: bytes)");
        return NULL;
    }
    PyObject *left = PyList_New(0);
    for (Py_ssize_t i = 0; left && i < PyList_GET_SIZE(given[0]) && i < PyList_GET_SIZE(given[1]); i++) {
        PyObject *one = PyList_GET_ITEM(given[0], i), *body = PyList_GET_ITEM(given[1], i);
        if (!PyBytes_CheckExact(body)) {
            PyErr_SetString(PyExc_TypeError, "the body of an answer is bytes");
            Py_CLEAR(left);
            break;
        }
        Py_INCREF(one);
        Py_INCREF(body);
        int done = answer_one(self, one, body, given[2]);
        Py_DECREF(one);
        Py_DECREF(body);
        if (done < 0 || (!done && !append(left, PyLong_FromSsize_t(i)))) Py_CLEAR(left);
    }
    return left;
}

/* What comes of telling writers their seqs: how many have heard, who has not, and what these should be told. */
typedef struct {
    Py_ssize_t count;
    PyObject *asking, *bodies;
} Told;

/* Those who wrote one record each to one topic, from this seq on; 0 if that raises. */
static int tell_writers(Sockets *self, PyObject *writers, SeqAnswer *answer, PyObject *head, Told *told) {
    Py_ssize_t head_bytes = PyBytes_GET_SIZE(head);
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(writers); i++, next_seq(answer)) {
        PyObject *one = Py_NewRef(PyList_GET_ITEM(writers, i)), *body = NULL;
        Py_ssize_t body_bytes = seq_answer_bytes(answer);
        long fd = may_answer(self, one, head_bytes + body_bytes);
        int done = 0;
        if (fd > 0) {
            char *w = self->buffer;
            PUT(PyBytes_AS_STRING(head), head_bytes);
            w = put_seq_answer(put_length(w, body_bytes), answer);
            done = send_answer(self, one, fd, w - self->buffer);
            told->count++;
        } else if (!fd && (body = PyBytes_FromStringAndSize(NULL, body_bytes))) {
            put_seq_answer(PyBytes_AS_STRING(body), answer);
            done = !PyList_Append(told->asking, one) && !PyList_Append(told->bodies, body);
        }
        Py_XDECREF(body);
        Py_DECREF(one);
        if (!done) return 0;
    }
    return 1;
}

/* One share, as `together.py` describes it; 0 if that raises. */
static int tell_share(Sockets *self, PyObject *share, PyObject *head, PyObject *after, Told *told) {
    enum { MOST_NAME = 1024 };
    char before[MOST_NAME + 64], *w = before;
    PyObject *topic = PyTuple_GET_ITEM(share, 0), *name = SLOT(topic, self->of_topic[NAME_JSON]);
    if (!name || !PyBytes_CheckExact(name) || PyBytes_GET_SIZE(name) > MOST_NAME) {
        PyErr_SetString(PyExc_ValueError, "a topic has a name, and not a long one");
        return 0;
    }
    PUT_ALL("{\"topic\":\"");
    PUT(PyBytes_AS_STRING(name), PyBytes_GET_SIZE(name));
    PUT_ALL("\",\"epoch\":");
    w += decimal(w, (uint64_t)number_in(SLOT(topic, self->of_topic[TOPIC_ID])));
    PUT_ALL(",\"first_seq\":");
    SeqAnswer answer = seq_answer(before, w - before, (uint64_t)number_in(PyTuple_GET_ITEM(share, 2)), after);
    return tell_writers(self, PyTuple_GET_ITEM(share, 1), &answer, head, told);
}

static int is_share(Sockets *self, PyObject *share) {
    return PyTuple_CheckExact(share) && PyTuple_GET_SIZE(share) >= 3 &&
           Py_IS_TYPE(PyTuple_GET_ITEM(share, 0), self->topic_type) && PyList_CheckExact(PyTuple_GET_ITEM(share, 1)) &&
           number_in(PyTuple_GET_ITEM(share, 2)) >= 0;
}

/* Milliseconds with three digits behind the point. */
static char *put_ms(char *w, double ms) {
    uint64_t us = ms > 0 && ms < 1e15 ? (uint64_t)(ms * 1000 + 0.5) : 0;
    w += decimal(w, us / 1000);
    us %= 1000;
    *w++ = '.';
    *w++ = (char)('0' + us / 100);
    *w++ = (char)('0' + us / 10 % 10);
    *w++ = (char)('0' + us % 10);
    return w;
}

/* What an answer says behind its seqs, a new reference: how long everything took, the journal, and the sync. */
static PyObject *after_seqs(const double *ms) {
    char text[256], *w = text;
    PUT_ALL(",\"count\":1,\"created\":false,\"deduped\":false,\"performance\":{\"server_total_ms\":");
    w = put_ms(w, ms[0]);
    PUT_ALL(",\"wal_append_ms\":");
    w = put_ms(w, ms[1]);
    PUT_ALL(",\"fsync_ms\":");
    w = put_ms(w, ms[2]);
    PUT_ALL("}}");
    return PyBytes_FromStringAndSize(text, w - text);
}

/* tell(shares, head, total_ms, wal_ms, fsync_ms) -> (count, asking, bodies): how many were answered here; those who
 * were not, and with what they should be. */
static PyObject *sockets_tell(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Sockets *self = (Sockets *)object;
    double ms[3];
    int is_sound = count == 5 && PyList_CheckExact(given[0]) && PyBytes_CheckExact(given[1]);
    for (Py_ssize_t i = 0; is_sound && i < PyList_GET_SIZE(given[0]); i++)
        is_sound = is_share(self, PyList_GET_ITEM(given[0], i));
    for (int i = 0; is_sound && i < 3; i++)
        if ((is_sound = PyFloat_CheckExact(given[2 + i]))) ms[i] = PyFloat_AS_DOUBLE(given[2 + i]);
    if (!is_sound) {
        PyErr_SetString(PyExc_TypeError, "tell(shares: list, head: bytes, total_ms, wal_ms, fsync_ms: float)");
        return NULL;
    }
    Told told = {0, PyList_New(0), PyList_New(0)};
    PyObject *after = after_seqs(ms);
    int went_well = told.asking && told.bodies && after;
    for (Py_ssize_t i = 0; went_well && i < PyList_GET_SIZE(given[0]); i++) {
        PyObject *share = Py_NewRef(PyList_GET_ITEM(given[0], i));
        went_well = tell_share(self, share, given[1], after, &told);
        Py_DECREF(share);
    }
    PyObject *result = went_well ? Py_BuildValue("nOO", told.count, told.asking, told.bodies) : NULL;
    Py_XDECREF(told.asking);
    Py_XDECREF(told.bodies);
    Py_XDECREF(after);
    return result;
}

static PyMethodDef sockets_methods[] = {
    {"fileno", sockets_fileno, METH_NOARGS, NULL},
    {"close", sockets_close, METH_NOARGS, NULL},
    {"add", sockets_add, METH_O, NULL},
    {"remove", sockets_remove, METH_O, NULL},
    {"receive", sockets_receive, METH_O, NULL},
    {"answer", (PyCFunction)(void (*)(void))sockets_answer, METH_FASTCALL, NULL},
    {"tell", (PyCFunction)(void (*)(void))sockets_tell, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

PyTypeObject SocketsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "topics.values._accelerator.Sockets",
    .tp_basicsize = sizeof(Sockets),
    .tp_new = sockets_new,
    .tp_dealloc = sockets_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = sockets_methods,
};
