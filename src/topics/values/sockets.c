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

/* --- the sockets ---------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    int poll;
    PyTypeObject *connection_type, *known_type;
    Py_ssize_t of_connection[CONNECTION_SLOTS], of_known[KNOWN_SLOTS];
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

static void sockets_dealloc(PyObject *object) {
    Sockets *self = (Sockets *)object;
    let_all_go(self);
    Py_XDECREF(self->connection_type);
    Py_XDECREF(self->known_type);
    Py_XDECREF(self->is_closing);
    Py_XDECREF(self->get_write_buffer_size);
    Py_XDECREF(self->write);
    PyMem_Free(self->buffer);
    PyObject_Free(object);
}

/* Sockets(type of connections, type of known requests) */
static PyObject *sockets_new(PyTypeObject *type, PyObject *args, PyObject *unused) {
    PyTypeObject *connection_type, *known_type;
    if (!PyArg_ParseTuple(args, "O!O!:Sockets", &PyType_Type, &connection_type, &PyType_Type, &known_type)) return NULL;
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
    self->is_closing = PyUnicode_InternFromString("is_closing");
    self->get_write_buffer_size = PyUnicode_InternFromString("get_write_buffer_size");
    self->write = PyUnicode_InternFromString("write");
    self->buffer = PyMem_Malloc(BUFFER_BYTES);
    if (!self->buffer) PyErr_NoMemory();
    if (PyErr_Occurred() || !find_slots(connection_type, connection_slots, CONNECTION_SLOTS, self->of_connection) ||
        !find_slots(known_type, known_slots, KNOWN_SLOTS, self->of_known))
        goto failed;
    return (PyObject *)self;
failed:
    Py_DECREF(self);
    return NULL;
}

static PyObject *sockets_fileno(PyObject *self, PyObject *unused) { return PyLong_FromLong(((Sockets *)self)->poll); }

static PyObject *sockets_close(PyObject *self, PyObject *unused) {
    let_all_go((Sockets *)self);
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

/* Nothing is known if there is an exception. */
static Found known_request(Sockets *self, PyObject *connection, PyObject *heads, Py_ssize_t bytes) {
    Found found = {0};
    if (OF(connection, CURRENT) != Py_None || OF(connection, BEHIND) != Py_False ||
        OF(connection, BEGUN) != Py_False || OF(connection, WRITE_PAUSED) != Py_False ||
        number_in(OF(connection, MODE)) != 0)
        return found;
    const char *end = memmem(self->buffer, bytes, "\r\n\r\n", 4);
    if (!end) return found;
    found.end = end - self->buffer;
    /* A head with an idempotency key is remembered without it. */
    KeyLine line;
    const unsigned char *start = (const unsigned char *)self->buffer;
    int is_keyed = key_in_head(start, start + found.end, &line);
    PyObject *head = is_keyed ? head_without(start, start + found.end, &line)
                              : PyBytes_FromStringAndSize(self->buffer, found.end);
    PyObject *known = head ? PyDict_GetItemWithError(heads, head) : NULL;
    if (is_keyed) {
        found.key = (const char *)line.key;
        found.key_bytes = line.stop - line.key;
    }
    Py_XDECREF(head);
    if (!known || !Py_IS_TYPE(known, self->known_type)) return found;
    PyObject *convoys = SLOT(known, self->of_known[CONVOYS]);
    int may_travel = convoys && convoys != Py_None && SLOT(known, self->of_known[KEY]) == Py_None;
    if (may_travel && number_in(SLOT(known, self->of_known[BODY_BYTES])) == bytes - found.end - 4) found.known = known;
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
    PyObject *one = is_keyed ? Py_BuildValue("O([][][])", name) : Py_BuildValue("O([][]O)", name, Py_None);
    if (!append(several, one)) return NULL;
    PyObject *sent = PyTuple_GET_ITEM(PyList_GET_ITEM(several, PyList_GET_SIZE(several) - 1), 1);
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
        PyObject *error_type, *error, *traceback, *lists[3] = {group->connections, group->bodies, group->keys};
        PyErr_Fetch(&error_type, &error, &traceback);
        for (int i = 0; i < 3; i++)
            if (lists[i]) PyList_SetSlice(lists[i], before, PY_SSIZE_T_MAX, NULL);
        PyErr_Restore(error_type, error, traceback);
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

/* Sends what the socket takes, and leaves the rest to the transport. -1 if that raises, 1 otherwise; 0 if this is
 * nothing for us. */
static int answer_one(Sockets *self, PyObject *connection, PyObject *body, const char *head, Py_ssize_t head_bytes) {
    long fd = seat_of(self, connection), waiting;
    if (fd < 0 || OF(connection, BEHIND) != Py_False) return 0;
    PyObject *current = OF(connection, CURRENT), *transport = OF(connection, TRANSPORT);
    if (!current || !Py_IS_TYPE(current, self->known_type) || SLOT(current, self->of_known[KEY]) != Py_None) return 0;
    Py_ssize_t body_bytes = PyBytes_GET_SIZE(body);
    if (head_bytes + body_bytes > BUFFER_BYTES - 32) return 0;
    if ((waiting = ask(transport, self->is_closing)) || (waiting = ask(transport, self->get_write_buffer_size)))
        return waiting < 0 ? -1 : 0;
    char *w = self->buffer;
    memcpy(w, head, head_bytes);
    w += head_bytes;
    w = put_length(w, body_bytes);
    memcpy(w, PyBytes_AS_STRING(body), body_bytes);
    w += body_bytes;
    put(&OF(connection, CURRENT), Py_NewRef(Py_None));
    ssize_t bytes = w - self->buffer, sent = send((int)fd, self->buffer, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == bytes) return 1;
    if (sent < 0) sent = 0; /* whatever is wrong, the transport will find it */
    PyObject *given[2] = {transport, PyBytes_FromStringAndSize(self->buffer + sent, bytes - sent)};
    if (!given[1]) return -1;
    Py_INCREF(transport);
    PyObject *done = PyObject_VectorcallMethod(self->write, given, 2, NULL);
    Py_DECREF(transport);
    Py_DECREF(given[1]);
    Py_XDECREF(done);
    return done ? 1 : -1;
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
        int done = answer_one(self, one, body, PyBytes_AS_STRING(given[2]), PyBytes_GET_SIZE(given[2]));
        Py_DECREF(one);
        Py_DECREF(body);
        if (done < 0 || (!done && !append(left, PyLong_FromSsize_t(i)))) Py_CLEAR(left);
    }
    return left;
}

static PyMethodDef sockets_methods[] = {
    {"fileno", sockets_fileno, METH_NOARGS, NULL},
    {"close", sockets_close, METH_NOARGS, NULL},
    {"add", sockets_add, METH_O, NULL},
    {"remove", sockets_remove, METH_O, NULL},
    {"receive", sockets_receive, METH_O, NULL},
    {"answer", (PyCFunction)(void (*)(void))sockets_answer, METH_FASTCALL, NULL},
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
