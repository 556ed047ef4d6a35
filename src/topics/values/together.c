/* Small writes to many topics, each put behind its topic's records: `log/write/together.py` says what that means, and
 * does the same without this file.
 *
 * A share of which anything is not as usual is left as it is, and to Python. What is done here is done whole: all that
 * takes memory comes first, and what was taken for nothing is given back.
 */
#include "accelerator.h"

#include <errno.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* What is looked into, and which of its fields. Of some kinds there is only one object, which is given at the start. */
enum { TOPIC, RUN, HOT, KEYS, CHUNK, JOURNAL, JOURNAL_FILE, FILE_, OP, UNSEALED, ALL_KEYS, COUNTERS, TOTALS, KINDS };
enum { FIRST_ALONE = UNSEALED, MOST_FIELDS = 20 };

enum {
    ID, ASSIGNED, RESERVED, RESERVE_ASKED, RESERVING, LAST_TS, PENDING_COUNT, PENDING_BYTES, PENDING_SYNC, RUNS, CONFIG,
    HEAD, FLOOR, FLOOR_TS, LIVE_COUNT, LIVE_BYTES, LAST_WRITE_TS, CHANGED, TOPIC_KEYS, LISTENERS
};
enum {
    BASE, COUNT, RUN_LIVE_COUNT, RUN_LIVE_BYTES, RUN_LAST_TS, RUN_HOT, DEAD, FROZEN, EPHEMERAL, START_POSITION
};
enum { SIZE, WEIGHT, ROWS, ENDS, TS_STARTS, TS_VALUES, DATA_LENS, TAG_CODES, HOPS };
enum { BY_PLACE, CHUNKS, KEY_COUNT, WAITERS };
enum { DIGESTS, KEY_ROWS, IS_CLOSED, IS_KEPT };
enum { POSITION, SYNCED_UPTO, FILES, CURRENT_FILE };
enum { FILE_BASE, FILE_END };
enum { DESCRIPTOR };
enum { SHARES, BUFFERS, WRITERS };
enum { MAX_EVENTS, MAX_BYTES, UNSEALED_BYTES };
enum { MOST_A_TOPIC, MOST_KEYS, SALT, KEY_HEADS, ALL_COUNT };
enum { FRAMES, BATCHES, BYTES_WRITTEN };
enum { RECORDS, BYTES, ALL_PENDING_BYTES };

static const char *const fields[KINDS][MOST_FIELDS + 1] = {
    [TOPIC] = {"id", "assigned", "reserved", "reserve_asked", "reserving", "last_ts", "pending_count", "pending_bytes",
               "pending_sync", "runs", "config", "head", "floor", "floor_ts", "live_count", "live_bytes",
               "last_write_ts", "changed", "keys", "listeners"},
    [RUN] = {"base", "count", "live_count", "live_bytes", "last_ts", "hot", "dead", "frozen", "ephemeral",
             "start_position"},
    [HOT] = {"size", "weight", "rows", "ends", "ts_starts", "ts_values", "data_lens", "tag_codes", "hops"},
    [KEYS] = {"by_place", "chunks", "count", "waiters"},
    [CHUNK] = {"digests", "rows", "is_closed", "is_kept"},
    [JOURNAL] = {"position", "synced", "files", "_file"},
    [JOURNAL_FILE] = {"base", "end"},
    [FILE_] = {"_fd"},
    [OP] = {"shares", "buffers", "writers"},
    [UNSEALED] = {"max_events", "max_bytes", "bytes"},
    [ALL_KEYS] = {"most_a_topic", "most", "salt", "heads", "count"},
    [COUNTERS] = {"frames", "batches", "bytes_written"},
    [TOTALS] = {"records", "bytes", "pending_bytes"},
};

/* Kinds of frames, as `frame.py` numbers them. */
enum { APPEND_FRAME = 4, KEYED_FRAME = 20 };

/* What a config says about writes: there is a limit; or there is none, perhaps a sync, and perhaps a window for keys.
 * Configs may share a place here, and are then asked about again. */
enum { LIMITED = 0, PLAIN = 1, SYNCED = 2, REMEMBERS = 4 };
enum { PLACES = 64 };
typedef struct {
    PyObject *config;
    int verdict;
} Judged;

typedef struct {
    PyObject_HEAD
    PyTypeObject *types[KINDS], *array_type;
    Py_ssize_t at[KINDS][MOST_FIELDS];
    /* Those of which there is one each, from the first of them on; and the topics by their names. */
    PyObject *alone[KINDS - FIRST_ALONE], *by_name;
    PyObject *judge, *digest, *no_keys;
    /* Names of methods. */
    PyObject *append, *frombytes, *undo_extend, *withdraw, *write;
    long most_seq, record_bytes, header_bytes;
    Judged judged[PLACES];
} Together;

#define OF(object, kind, field) SLOT(object, self->at[kind][field])
#define OF_TOPIC(topic, field) OF(topic, TOPIC, field)
#define OF_RUN(run, field) OF(run, RUN, field)
#define OF_HOT(hot, field) OF(hot, HOT, field)
#define IS(object, kind) Py_IS_TYPE(object, self->types[kind])
#define THE(kind, field) OF(self->alone[kind - FIRST_ALONE], kind, field)

static void together_dealloc(PyObject *object) {
    Together *self = (Together *)object;
    PyObject *kept[] = {(PyObject *)self->array_type, self->by_name, self->judge,       self->digest,   self->no_keys,
                        self->append,                 self->frombytes, self->undo_extend, self->withdraw, self->write};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) Py_XDECREF(kept[i]);
    for (int i = 0; i < PLACES; i++) Py_XDECREF(self->judged[i].config);
    for (int i = 0; i < KINDS; i++) Py_XDECREF(self->types[i]);
    for (int i = 0; i < KINDS - FIRST_ALONE; i++) Py_XDECREF(self->alone[i]);
    PyObject_Free(object);
}

/* 0 if it is not what it should be. */
static int find_fields(Together *self, PyObject *types, PyObject *alone) {
    int is_sound = PyTuple_CheckExact(types) && PyTuple_GET_SIZE(types) == FIRST_ALONE && PyTuple_CheckExact(alone) &&
                   PyTuple_GET_SIZE(alone) == KINDS - FIRST_ALONE;
    for (int i = 0; is_sound && i < FIRST_ALONE; i++) is_sound = PyType_Check(PyTuple_GET_ITEM(types, i));
    if (!is_sound) {
        PyErr_SetString(PyExc_TypeError, "Together: other types, or other objects");
        return 0;
    }
    for (int i = 0; i < KINDS; i++) {
        PyObject *one = i < FIRST_ALONE ? NULL : PyTuple_GET_ITEM(alone, i - FIRST_ALONE);
        if (one) self->alone[i - FIRST_ALONE] = Py_NewRef(one);
        self->types[i] = (PyTypeObject *)Py_NewRef(one ? (PyObject *)Py_TYPE(one) : PyTuple_GET_ITEM(types, i));
        int count = 0;
        while (fields[i][count]) count++;
        if (!find_slots(self->types[i], fields[i], count, self->at[i])) return 0;
    }
    return 1;
}

/* Together(types, objects of which there is one each, topics by name, array, judge, digest, most_seq, record_bytes,
 * header_bytes) */
static PyObject *together_new(PyTypeObject *type, PyObject *args, PyObject *unused) {
    PyTypeObject *array_type;
    PyObject *types, *alone, *by_name, *judge, *digest;
    long most_seq, record_bytes, header_bytes;
    if (!PyArg_ParseTuple(args, "OOO!O!OOlll:Together", &types, &alone, &PyDict_Type, &by_name, &PyType_Type, &array_type,
                          &judge, &digest, &most_seq, &record_bytes, &header_bytes))
        return NULL;
    Together *self = PyObject_New(Together, type);
    if (!self) return NULL;
    memset((char *)self + offsetof(Together, types), 0, sizeof(Together) - offsetof(Together, types));
    self->array_type = (PyTypeObject *)Py_NewRef(array_type);
    self->by_name = Py_NewRef(by_name);
    self->judge = Py_NewRef(judge);
    self->digest = Py_NewRef(digest);
    self->most_seq = most_seq;
    self->record_bytes = record_bytes;
    self->header_bytes = header_bytes;
    self->no_keys = PyBytes_FromStringAndSize(NULL, 0);
    self->append = PyUnicode_InternFromString("append");
    self->frombytes = PyUnicode_InternFromString("frombytes");
    self->undo_extend = PyUnicode_InternFromString("undo_extend");
    self->withdraw = PyUnicode_InternFromString("withdraw");
    self->write = PyUnicode_InternFromString("write");
    if (PyErr_Occurred() || !find_fields(self, types, alone)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

/* What `judge` says of a config, which never changes. -1 if it raises. */
static int verdict_of(Together *self, PyObject *config) {
    Judged *place = &self->judged[((uintptr_t)config >> 4) % PLACES];
    if (place->config != config) {
        PyObject *said = PyObject_CallOneArg(self->judge, config);
        long verdict = said ? PyLong_AsLong(said) : -1;
        Py_XDECREF(said);
        if (verdict < 0) return -1;
        place->verdict = (int)verdict;
        put(&place->config, Py_NewRef(config));
    }
    return place->verdict;
}

/* --- a share of one topic ---------------------------------------------------------------------------------------- */

/* What the numbers of a share are before it, and what they become; all new ones are made before the first is put. */
typedef struct {
    PyObject **slot;
    PyObject *value;
} Change;

enum { MOST_CHANGES = 12 };
typedef struct {
    Change changes[MOST_CHANGES];
    int count, failed;
} Changes;

static void change(Changes *all, PyObject **slot, int64_t value) {
    PyObject *number = all->failed ? NULL : PyLong_FromLongLong(value);
    if (!number) all->failed = 1;
    else all->changes[all->count++] = (Change){slot, number};
}

static void make_changes(Changes *all) {
    for (int i = 0; i < all->count; i++) put(all->changes[i].slot, all->changes[i].value);
}

static void forget_changes(Changes *all) {
    for (int i = 0; i < all->count; i++) Py_DECREF(all->changes[i].value);
}

/* Calls a method with one argument, of which nobody wants to know the answer; 0 if it raises. */
static int tell(PyObject *object, PyObject *method, PyObject *argument) {
    PyObject *given[2] = {object, argument}, *done = PyObject_VectorcallMethod(method, given, 2, NULL);
    Py_XDECREF(done);
    return done != NULL;
}

static int tell_number(PyObject *object, PyObject *method, int64_t number) {
    PyObject *argument = PyLong_FromLongLong(number);
    int done = argument && tell(object, method, argument);
    Py_XDECREF(argument);
    return done;
}

/* Whether the last time in the array is this one. -1 if that cannot be told. */
static int is_last_time(PyObject *times, int64_t ts) {
    Py_buffer view;
    if (PyObject_GetBuffer(times, &view, PyBUF_SIMPLE)) return -1;
    int64_t last = ts - 1;
    if (view.len >= 8) memcpy(&last, (char *)view.buf + view.len - 8, 8);
    PyBuffer_Release(&view);
    return last == ts;
}

/* Whether rows of so many bytes fit behind `size` others, without moving much that is there. */
static int has_room(PyObject *rows, int64_t size, int64_t bytes) {
    if (PyByteArray_CheckExact(rows)) return PyByteArray_GET_SIZE(rows) == size;
    if (!PyMemoryView_Check(rows)) return 0;
    const Py_buffer *view = PyMemoryView_GET_BUFFER(rows);
    return !view->readonly && view->itemsize == 1 && PyBuffer_IsContiguous(view, 'C') && view->len - size >= bytes;
}

/* The columns get the rows of a frame; 0 if there is no memory for them. */
static int extend(Together *self, PyObject *hot, int64_t size, int64_t count, PyObject *frame, const PlainRows *rows,
                  int64_t ts) {
    PyObject *to = OF_HOT(hot, ROWS);
    const char *from = PyBytes_AS_STRING(frame) + rows->at;
    if (PyByteArray_CheckExact(to)) {
        if (PyByteArray_Resize(to, (Py_ssize_t)size + rows->bytes)) return 0;
        memcpy(PyByteArray_AS_STRING(to) + size, from, rows->bytes);
    } else {
        memcpy((char *)PyMemoryView_GET_BUFFER(to)->buf + size, from, rows->bytes);
    }
    int is_last = is_last_time(OF_HOT(hot, TS_VALUES), ts);
    if (is_last < 0) return 0;
    if (!is_last && (!tell_number(OF_HOT(hot, TS_STARTS), self->append, count) ||
                     !tell_number(OF_HOT(hot, TS_VALUES), self->append, ts)))
        return 0;
    return tell(OF_HOT(hot, ENDS), self->frombytes, rows->ends);
}

/* What all shares of one turn have in common, and what comes of them. */
typedef struct {
    int64_t now, position, synced, max_events, max_bytes, max_keys;
    PyObject *held, *touched;
    /* Of the digests of idempotency keys; and what a frame says before so many of them. */
    const unsigned char *salt;
    PyObject *key_heads;
    /* Of those without a sync, and of those with one. */
    PyObject *shares[2], *frames[2];
    int64_t counts[2], size, added, keyed;
    /* How many topics remember more keys than they should. */
    int64_t crowded;
    /* Topics of which something else is to be done. */
    PyObject *notable;
} Turn;

/* Whether the topic takes so many plain records as they are: then its open run is put to `run`. -1 if that raises. */
static int takes(Together *self, const Turn *turn, PyObject *topic, int64_t count, int64_t most_bytes, PyObject **run,
                 int *verdict) {
    if (!IS(topic, TOPIC)) return 0;
    PyObject *runs = OF_TOPIC(topic, RUNS), *hot;
    if ((*verdict = verdict_of(self, OF_TOPIC(topic, CONFIG))) <= LIMITED) return *verdict;
    if (!(*verdict & SYNCED) && number_in(OF_TOPIC(topic, PENDING_SYNC)) != 0) return 0;
    int is_held = PySet_GET_SIZE(turn->held) ? PySet_Contains(turn->held, topic) : 0;
    if (is_held) return is_held < 0 ? -1 : 0;
    /* What is left is looked at, not what it will be: behind the last seq that there is comes a negative one. */
    int64_t assigned = number_in(OF_TOPIC(topic, ASSIGNED));
    if (assigned < 0 || count > number_in(OF_TOPIC(topic, RESERVED)) - assigned || count > self->most_seq - assigned)
        return 0;
    if (!runs || !PyList_CheckExact(runs) || !PyList_GET_SIZE(runs)) return 0;
    *run = PyList_GET_ITEM(runs, PyList_GET_SIZE(runs) - 1);
    if (!IS(*run, RUN)) return 0;
    hot = OF_RUN(*run, RUN_HOT);
    if (!hot || !IS(hot, HOT) || OF_RUN(*run, DEAD) != Py_None || OF_RUN(*run, FROZEN) != Py_False ||
        OF_RUN(*run, EPHEMERAL) != Py_False || OF_HOT(hot, DATA_LENS) != Py_None ||
        OF_HOT(hot, TAG_CODES) != Py_None || OF_HOT(hot, HOPS) != Py_None)
        return 0;
    int64_t held = number_in(OF_RUN(*run, COUNT)), size = number_in(OF_HOT(hot, SIZE));
    return held >= 0 && size >= 0 && number_in(OF_RUN(*run, BASE)) + held == assigned + 1 && held < turn->max_events &&
           size < turn->max_bytes && number_in(OF_RUN(*run, START_POSITION)) <= turn->position &&
           Py_IS_TYPE(OF_HOT(hot, ENDS), self->array_type) && has_room(OF_HOT(hot, ROWS), size, most_bytes);
}

/* --- idempotency keys -------------------------------------------------------------------------------------------- */

enum { MOST_KEY = 256, RECORDS_BITS = 24, FULL_CHUNK = 512 * DIGEST_BYTES };

/* Of the keys of one share: who remembers them and where; what stands in the frame; and how many have their place. */
typedef struct {
    PyObject *holder, *by_place, *chunk, *encoded;
    Py_ssize_t head_bytes, count, placed;
} Keys;

static void leave_places(Keys *keys) {
    for (; keys->placed; keys->placed--)
        leave_place(keys->by_place,
                    place_of(PyBytes_AS_STRING(keys->encoded) + keys->head_bytes + DIGEST_BYTES * (keys->placed - 1)));
}

/* Takes the keys of a share, each of which stands for one record. 1 if none of them is remembered; 0 if this is for
 * Python; -1 if it raises. */
static int take_keys(Together *self, const Turn *turn, PyObject *topic, PyObject *given, Keys *keys) {
    PyObject *holder = OF_TOPIC(topic, TOPIC_KEYS), *chunks, *chunk, *head;
    Py_ssize_t count = PyList_GET_SIZE(given);
    if (!holder || !IS(holder, KEYS) || count >= PyList_GET_SIZE(turn->key_heads)) return 0;
    chunks = OF(holder, KEYS, CHUNKS);
    keys->by_place = OF(holder, KEYS, BY_PLACE);
    if (!chunks || !PyList_CheckExact(chunks) || !PyList_GET_SIZE(chunks) || !Py_IS_TYPE(keys->by_place, &PlacesType))
        return 0;
    chunk = PyList_GET_ITEM(chunks, PyList_GET_SIZE(chunks) - 1);
    if (!IS(chunk, CHUNK) || OF(chunk, CHUNK, IS_CLOSED) != Py_False ||
        OF(chunk, CHUNK, IS_KEPT) != Py_True ||
        !PyByteArray_CheckExact(OF(chunk, CHUNK, DIGESTS)))
        return 0;
    head = PyList_GET_ITEM(turn->key_heads, count);
    if (!PyBytes_CheckExact(head)) return 0;
    keys->holder = holder;
    keys->chunk = chunk;
    keys->count = count;
    keys->head_bytes = PyBytes_GET_SIZE(head);
    if (!(keys->encoded = PyBytes_FromStringAndSize(NULL, keys->head_bytes + DIGEST_BYTES * count))) return -1;
    char *w = PyBytes_AS_STRING(keys->encoded);
    memcpy(w, PyBytes_AS_STRING(head), keys->head_bytes);
    w += keys->head_bytes;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *key = PyList_GET_ITEM(given, i);
        if (!PyBytes_CheckExact(key) || PyBytes_GET_SIZE(key) > MOST_KEY) return 0;
        digest_of_key(turn->salt, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), w + DIGEST_BYTES * i);
        expect_place(keys->by_place, place_of(w + DIGEST_BYTES * i));
    }
    while (keys->placed < count && take_place(keys->by_place, place_of(w), chunk) > 0) {
        keys->placed++;
        w += DIGEST_BYTES;
    }
    if (keys->placed == count) return 1;
    leave_places(keys);
    return 0;
}

/* The records of the keys have their seqs; 0 if there is no memory for it. */
static int remember_keys(Together *self, const Turn *turn, Keys *keys, int64_t first) {
    PyObject *digests = OF(keys->chunk, CHUNK, DIGESTS);
    Py_ssize_t before = PyByteArray_GET_SIZE(digests), bytes = DIGEST_BYTES * keys->count;
    int64_t row[3] = {first, turn->now, before / DIGEST_BYTES << RECORDS_BITS};
    PyObject *packed = PyBytes_FromStringAndSize((const char *)row, sizeof row);
    int done = packed && tell(OF(keys->chunk, CHUNK, KEY_ROWS), self->frombytes, packed);
    Py_XDECREF(packed);
    if (!done || PyByteArray_Resize(digests, before + bytes)) return 0;
    memcpy(PyByteArray_AS_STRING(digests) + before, PyBytes_AS_STRING(keys->encoded) + keys->head_bytes, bytes);
    if (before >= FULL_CHUNK) put(&OF(keys->chunk, CHUNK, IS_CLOSED), Py_NewRef(Py_True));
    return 1;
}

/* They belong to no records after all. */
static void withdraw_keys(Together *self, Keys *keys) {
    PyObject *digests =
        PyBytes_FromStringAndSize(PyBytes_AS_STRING(keys->encoded) + keys->head_bytes, DIGEST_BYTES * keys->count);
    PyObject *given[3] = {keys->holder, digests, keys->chunk};
    PyObject *done = digests ? PyObject_VectorcallMethod(self->withdraw, given, 3, NULL) : NULL;
    if (!done) PyErr_Clear();
    Py_XDECREF(done);
    Py_XDECREF(digests);
}

/* --- a share ------------------------------------------------------------------------------------------------------ */

/* (topic, writers, first seq, count, bytes of data, time, who remembers the keys) */
static PyObject *new_share(PyObject *topic, PyObject *writers, const int64_t numbers[4], PyObject *keys) {
    PyObject *share = PyTuple_New(7);
    if (!share) return NULL;
    PyTuple_SET_ITEM(share, 0, Py_NewRef(topic));
    PyTuple_SET_ITEM(share, 1, Py_NewRef(writers));
    PyTuple_SET_ITEM(share, 6, Py_NewRef(keys));
    for (int i = 0; i < 4; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number) {
            Py_DECREF(share);
            return NULL;
        }
        PyTuple_SET_ITEM(share, 2 + i, number);
    }
    return share;
}

/* 1 if the topic has the records, 0 if they are left; negative if that raises, and then they are left too. */
static int append_share(Together *self, Turn *turn, PyObject *topic, PyObject *writers, PyObject *bodies,
                        PyObject *given) {
    PyObject *run = NULL, *hot, *frame = NULL, *share = NULL;
    PlainRows rows = {0};
    Changes changes = {.count = 0};
    Keys keys = {0};
    int verdict = LIMITED, done = -1, is_listed = 0;
    int64_t count = PyList_GET_SIZE(bodies), most_bytes = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *body = PyList_GET_ITEM(bodies, i);
        if (!PyBytes_CheckExact(body)) return 0;
        most_bytes += PyBytes_GET_SIZE(body) + 128;
    }
    int taken = count ? takes(self, turn, topic, count, most_bytes, &run, &verdict) : 0;
    if (taken > 0 && given != Py_None && verdict & REMEMBERS) {
        if (!PyList_CheckExact(given) || PyList_GET_SIZE(given) != count) return 0;
        taken = take_keys(self, turn, topic, given, &keys);
    }
    if (taken <= 0) {
        Py_XDECREF(keys.encoded);
        return taken;
    }
    hot = OF_RUN(run, RUN_HOT);
    int64_t size = number_in(OF_HOT(hot, SIZE)), held = number_in(OF_RUN(run, COUNT));
    int64_t assigned = number_in(OF_TOPIC(topic, ASSIGNED)), last_ts = number_in(OF_TOPIC(topic, LAST_TS));
    /* Later than now where the clock was set back: the time of records never falls. */
    int64_t ts = turn->now > last_ts ? turn->now : last_ts;
    frame = make_plain_frame(keys.encoded ? KEYED_FRAME : APPEND_FRAME, keys.encoded ? keys.encoded : self->no_keys,
                             bodies, (uint64_t)number_in(OF_TOPIC(topic, ID)), (uint64_t)assigned + 1, (uint64_t)ts,
                             (uint64_t)(ts - turn->now), (uint64_t)turn->synced, (uint64_t)size, self->digest, &rows);
    if (!frame) {
        done = PyErr_Occurred() ? -1 : 0;
        goto done;
    }
    int64_t data = (int64_t)rows.data_bytes, added = rows.bytes + self->record_bytes * count;
    int is_synced = (verdict & SYNCED) != 0;
    change(&changes, &OF_TOPIC(topic, ASSIGNED), assigned + count);
    change(&changes, &OF_TOPIC(topic, PENDING_COUNT), number_in(OF_TOPIC(topic, PENDING_COUNT)) + count);
    change(&changes, &OF_TOPIC(topic, PENDING_BYTES), number_in(OF_TOPIC(topic, PENDING_BYTES)) + data);
    change(&changes, &OF_TOPIC(topic, LAST_TS), ts);
    change(&changes, &OF_RUN(run, COUNT), held + count);
    change(&changes, &OF_RUN(run, RUN_LIVE_COUNT), number_in(OF_RUN(run, RUN_LIVE_COUNT)) + count);
    change(&changes, &OF_RUN(run, RUN_LIVE_BYTES), number_in(OF_RUN(run, RUN_LIVE_BYTES)) + data);
    change(&changes, &OF_RUN(run, RUN_LAST_TS), ts);
    change(&changes, &OF_HOT(hot, SIZE), size + rows.bytes);
    change(&changes, &OF_HOT(hot, WEIGHT), number_in(OF_HOT(hot, WEIGHT)) + added);
    int64_t remembered = keys.encoded ? number_in(OF(keys.holder, KEYS, KEY_COUNT)) + keys.count : 0;
    if (keys.encoded) change(&changes, &OF(keys.holder, KEYS, KEY_COUNT), remembered);
    share = new_share(topic, writers, (int64_t[]){assigned + 1, count, data, ts}, keys.encoded ? keys.holder : Py_None);
    int64_t asked = number_in(OF_TOPIC(topic, RESERVE_ASKED)), step = number_in(OF_TOPIC(topic, RESERVING));
    int is_notable = held + count >= turn->max_events || size + rows.bytes >= turn->max_bytes ||
                     asked - assigned - count < step >> 2;
    if (changes.failed || !share || (is_notable && PyList_Append(turn->notable, topic)) ||
        PySet_Add(turn->touched, topic) || PyList_Append(turn->shares[is_synced], share))
        goto done;
    is_listed = 1;
    if (PyList_Append(turn->frames[is_synced], frame)) goto done;
    is_listed = 2;
    if (!extend(self, hot, size, held, frame, &rows, ts) ||
        (keys.encoded && !remember_keys(self, turn, &keys, assigned + 1))) {
        PyObject *error_type, *error, *traceback;
        PyErr_Fetch(&error_type, &error, &traceback);
        if (!tell(topic, self->undo_extend, run)) PyErr_Clear();
        if (keys.encoded) withdraw_keys(self, &keys);
        PyErr_Restore(error_type, error, traceback);
        goto done;
    }
    make_changes(&changes);
    changes.count = 0;
    turn->counts[is_synced] += count;
    turn->size += data;
    turn->added += added;
    turn->keyed += keys.count;
    turn->crowded += remembered > turn->max_keys;
    keys.placed = 0;
    done = 1;
done:
    leave_places(&keys);
    if (done < 0 && is_listed) {
        PyObject *lists[2] = {turn->shares[is_synced], turn->frames[is_synced]};
        for (int i = 0; i < is_listed; i++) shorten(lists[i], PyList_GET_SIZE(lists[i]) - 1);
    }
    forget_changes(&changes);
    Py_XDECREF(share);
    Py_XDECREF(frame);
    Py_XDECREF(rows.ends);
    Py_XDECREF(keys.encoded);
    return done;
}

/* What is wanted of one topic: its name, and what it gets. */
typedef struct {
    PyObject *name, *writers, *bodies, *keys;
} Wanted;

/* 0 if this is something else. */
static int parse(PyObject *one, Wanted *wanted) {
    if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) != 2) return 0;
    PyObject *sent = PyTuple_GET_ITEM(one, 1);
    if (!PyTuple_Check(sent) || PyTuple_GET_SIZE(sent) != 3) return 0;
    *wanted = (Wanted){PyTuple_GET_ITEM(one, 0), PyTuple_GET_ITEM(sent, 0), PyTuple_GET_ITEM(sent, 1),
                       PyTuple_GET_ITEM(sent, 2)};
    return PyList_CheckExact(wanted->writers) && PyList_CheckExact(wanted->bodies);
}

/* The indexes of all that is wanted: a list that is as long as it can become before the first share has its seqs. */
static PyObject *all_indexes(Py_ssize_t count) {
    PyObject *all = PyList_New(count);
    for (Py_ssize_t i = 0; all && i < count; i++) {
        PyObject *index = PyLong_FromSsize_t(i);
        if (index) PyList_SET_ITEM(all, i, index);
        else Py_CLEAR(all);
    }
    return all;
}

/* It becomes so much more. Without memory for another number it stays as it is: nobody can be told here, and an exception
 * that there was before is still there. */
static void add_to(PyObject **sum, int64_t more) {
    PyObject *type, *error, *traceback;
    if (!more) return;
    PyErr_Fetch(&type, &error, &traceback);
    PyObject *number = PyLong_FromLongLong(number_in(*sum) + more);
    if (number) put(sum, number);
    PyErr_Restore(type, error, traceback);
}

enum { WANTED, HELD, TOUCHED, NOW, JOURNAL_GIVEN, UNSYNCED, SYNCED_TOO, ALL_GIVEN };

/* 0 if something else was given. */
static int begin_turn(Together *self, Turn *turn, PyObject *const *given, Py_ssize_t count) {
    Wanted one;
    int is_sound = count == ALL_GIVEN && PyList_CheckExact(given[WANTED]) && PySet_Check(given[HELD]) &&
                   PySet_Check(given[TOUCHED]) && PyLong_CheckExact(given[NOW]) && IS(given[JOURNAL_GIVEN], JOURNAL) &&
                   IS(given[UNSYNCED], OP) && IS(given[SYNCED_TOO], OP);
    for (Py_ssize_t i = 0; is_sound && i < PyList_GET_SIZE(given[WANTED]); i++)
        is_sound = parse(PyList_GET_ITEM(given[WANTED], i), &one);
    if (is_sound) {
        PyObject *journal = given[JOURNAL_GIVEN], *salt = THE(ALL_KEYS, SALT);
        *turn = (Turn){.now = number_in(given[NOW]),
                       .position = number_in(OF(journal, JOURNAL, POSITION)),
                       .synced = number_in(OF(journal, JOURNAL, SYNCED_UPTO)),
                       .max_events = number_in(THE(UNSEALED, MAX_EVENTS)),
                       .max_bytes = number_in(THE(UNSEALED, MAX_BYTES)),
                       .max_keys = number_in(THE(ALL_KEYS, MOST_A_TOPIC)),
                       .held = given[HELD],
                       .touched = given[TOUCHED],
                       .key_heads = THE(ALL_KEYS, KEY_HEADS)};
        for (int i = 0; i < 2; i++) {
            turn->shares[i] = OF(given[UNSYNCED + i], OP, SHARES);
            turn->frames[i] = OF(given[UNSYNCED + i], OP, BUFFERS);
            is_sound = is_sound && turn->shares[i] && PyList_CheckExact(turn->shares[i]) && turn->frames[i] &&
                       PyList_CheckExact(turn->frames[i]);
        }
        is_sound = is_sound && salt && PyBytes_CheckExact(salt) && PyBytes_GET_SIZE(salt) == SALT_BYTES &&
                   turn->key_heads && PyList_CheckExact(turn->key_heads);
        if (is_sound) turn->salt = (const unsigned char *)PyBytes_AS_STRING(salt);
    }
    if (!is_sound) PyErr_SetString(PyExc_TypeError, "something else was wanted");
    return is_sound;
}

/* All that can be written together has its seqs, and both operations their shares and frames. What is left stays in
 * `left`, which has all indexes. Nothing can be refused once the first share has its seqs. */
static void append_all(Together *self, Turn *turn, PyObject *const *given, PyObject *left) {
    Py_ssize_t kept = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(left); i++) {
        Wanted one;
        int is_sound = i < PyList_GET_SIZE(given[WANTED]) && parse(PyList_GET_ITEM(given[WANTED], i), &one);
        PyObject *topic = is_sound ? PyDict_GetItemWithError(self->by_name, one.name) : NULL;
        int appended = topic ? append_share(self, turn, topic, one.writers, one.bodies, one.keys) : 0;
        /* Without memory, it is for Python to say so. */
        PyErr_Clear();
        if (appended <= 0) {
            PyObject *index = PyList_GET_ITEM(left, i);
            PyList_SET_ITEM(left, i, PyList_GET_ITEM(left, kept));
            PyList_SET_ITEM(left, kept++, index);
        }
    }
    shorten(left, kept);
    for (int i = 0; i < 2; i++) {
        PyObject *writers = PyLong_FromLongLong(turn->counts[i]);
        if (writers) put(&OF(given[UNSYNCED + i], OP, WRITERS), writers);
    }
    add_to(&THE(COUNTERS, FRAMES), turn->counts[0] + turn->counts[1]);
    add_to(&THE(TOTALS, ALL_PENDING_BYTES), turn->size);
    add_to(&THE(UNSEALED, UNSEALED_BYTES), turn->added);
    add_to(&THE(ALL_KEYS, ALL_COUNT), turn->keyed);
    turn->crowded += turn->keyed && number_in(THE(ALL_KEYS, ALL_COUNT)) > number_in(THE(ALL_KEYS, MOST_KEYS));
    PyErr_Clear();
}

/* append(wanted, held, touched, now, journal, operation, operation with a sync) -> (left, notable, is_crowded): the
 * indexes of what is left; topics with something to be seen to; and whether there are more keys than there should be */
static PyObject *together_append(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Together *self = (Together *)object;
    Turn turn;
    if (!begin_turn(self, &turn, given, count)) return NULL;
    PyObject *left = all_indexes(PyList_GET_SIZE(given[WANTED])), *notable = turn.notable = PyList_New(0);
    PyObject *result = left && notable ? PyTuple_Pack(3, left, notable, Py_None) : NULL;
    if (result) {
        append_all(self, &turn, given, left);
        PyTuple_SetItem(result, 2, PyBool_FromLong(turn.crowded != 0));
    }
    Py_XDECREF(left);
    Py_XDECREF(notable);
    return result;
}

/* --- into the journal --------------------------------------------------------------------------------------------- */

enum { MOST_FRAMES = 64 };

/* All frames with one call of the system: 1 if it has taken them; 0 if only some of them, or none because a signal came;
 * -1 if it raises. What was refused is not tried again: after that, there is no telling what the disk holds. */
static int write_at(long fd, const Turn *turn, int64_t offset, int64_t bytes) {
    struct iovec parts[MOST_FRAMES];
    int count = 0;
    for (int i = 0; i < 2; i++)
        for (Py_ssize_t k = 0; k < PyList_GET_SIZE(turn->frames[i]); k++) {
            PyObject *frame = PyList_GET_ITEM(turn->frames[i], k);
            parts[count++] = (struct iovec){PyBytes_AS_STRING(frame), (size_t)PyBytes_GET_SIZE(frame)};
        }
    ssize_t written;
    int number;
    Py_BEGIN_ALLOW_THREADS;
    written = pwritev((int)fd, parts, count, offset);
    number = errno;
    Py_END_ALLOW_THREADS;
    if (written >= 0 || number == EINTR) return written == bytes;
    errno = number;
    PyErr_SetFromErrno(PyExc_OSError);
    return -1;
}

/* The same by the file's own method, which knows how to go on; 0 if it raises. */
static int write_by_method(Together *self, PyObject *file, const Turn *turn, int64_t offset) {
    PyObject *at = PyLong_FromLongLong(offset), *all = PySequence_Concat(turn->frames[0], turn->frames[1]);
    PyObject *given[3] = {file, all, at}, *done = NULL;
    if (at && all) done = PyObject_VectorcallMethod(self->write, given, 3, NULL);
    Py_XDECREF(at);
    Py_XDECREF(all);
    Py_XDECREF(done);
    return done != NULL;
}

/* The journal gets the frames of both operations, behind all others; 0 if that raises, and then it has none. */
static int write_frames(Together *self, PyObject *journal, const Turn *turn) {
    PyObject *files = OF(journal, JOURNAL, FILES), *file = OF(journal, JOURNAL, CURRENT_FILE), *last, *end;
    int64_t bytes = 0, count = 0;
    for (int i = 0; i < 2; i++)
        for (Py_ssize_t k = 0; k < PyList_GET_SIZE(turn->frames[i]); k++, count++)
            bytes += PyBytes_GET_SIZE(PyList_GET_ITEM(turn->frames[i], k));
    if (!count) return 1;
    if (!file || !files || !PyList_CheckExact(files) || !PyList_GET_SIZE(files) ||
        !IS(last = PyList_GET_ITEM(files, PyList_GET_SIZE(files) - 1), JOURNAL_FILE)) {
        PyErr_SetString(PyExc_TypeError, "a journal has a file");
        return 0;
    }
    int64_t offset = self->header_bytes + turn->position - number_in(OF(last, JOURNAL_FILE, FILE_BASE));
    if (!(end = PyLong_FromLongLong(turn->position + bytes))) return 0;
    int is_usual = IS(file, FILE_) && count <= MOST_FRAMES;
    int done = is_usual ? write_at(number_in(OF(file, FILE_, DESCRIPTOR)), turn, offset, bytes) : 0;
    if (!done) done = write_by_method(self, file, turn, offset);
    if (done > 0) {
        put(&OF(last, JOURNAL_FILE, FILE_END), Py_NewRef(end));
        put(&OF(journal, JOURNAL, POSITION), Py_NewRef(end));
        add_to(&THE(COUNTERS, BATCHES), 1);
        add_to(&THE(COUNTERS, BYTES_WRITTEN), bytes);
    }
    Py_DECREF(end);
    return done > 0;
}

static double ms_since(const struct timespec *began) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - began->tv_sec) * 1e3 + (double)(now.tv_nsec - began->tv_nsec) / 1e6;
}

/* commit(the same) -> (left, notable, is_crowded, wal_ms, error): as `append`, and the journal has it, if there is no
 * error; how long that took */
static PyObject *together_commit(PyObject *object, PyObject *const *given, Py_ssize_t count) {
    Together *self = (Together *)object;
    Turn turn;
    struct timespec began;
    if (!begin_turn(self, &turn, given, count)) return NULL;
    PyObject *left = all_indexes(PyList_GET_SIZE(given[WANTED])), *notable = turn.notable = PyList_New(0);
    PyObject *took = PyFloat_FromDouble(0), *type, *error = NULL, *traceback;
    PyObject *result = left && notable && took ? PyTuple_Pack(5, left, notable, Py_False, took, Py_None) : NULL;
    if (result) {
        append_all(self, &turn, given, left);
        if (turn.crowded) PyTuple_SetItem(result, 2, Py_NewRef(Py_True));
        clock_gettime(CLOCK_MONOTONIC, &began);
        if (!write_frames(self, given[JOURNAL_GIVEN], &turn)) {
            PyErr_Fetch(&type, &error, &traceback);
            PyErr_NormalizeException(&type, &error, &traceback);
            PyTuple_SetItem(result, 4, Py_NewRef(error));
            Py_XDECREF(type);
            Py_XDECREF(error);
            Py_XDECREF(traceback);
        }
        /* Nobody else has seen it. */
        ((PyFloatObject *)took)->ob_fval = ms_since(&began);
    }
    Py_XDECREF(left);
    Py_XDECREF(notable);
    Py_XDECREF(took);
    return result;
}

/* --- showing ------------------------------------------------------------------------------------------------------ */

/* publish(shares) -> (limited, heard, waited), or None if none of them is: what the shares have brought becomes visible,
 * but for those of topics that a limit has come to; topics that have listeners; and keys that somebody waits for */
static PyObject *together_publish(PyObject *object, PyObject *shares) {
    Together *self = (Together *)object;
    if (!PyList_CheckExact(shares)) {
        PyErr_SetString(PyExc_TypeError, "publish(shares: list)");
        return NULL;
    }
    PyObject *limited = PyList_New(0), *heard = PyList_New(0), *waited = PyList_New(0), *result = NULL;
    int64_t records = 0, bytes = 0;
    if (!limited || !heard || !waited) goto done;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(shares); i++) {
        PyObject *share = PyList_GET_ITEM(shares, i), *topic, *keys;
        Changes changes = {.count = 0};
        int is_sound = PyTuple_CheckExact(share) && PyTuple_GET_SIZE(share) == 7 &&
                       IS(topic = PyTuple_GET_ITEM(share, 0), TOPIC) &&
                       ((keys = PyTuple_GET_ITEM(share, 6)) == Py_None || IS(keys, KEYS));
        if (!is_sound) {
            PyErr_SetString(PyExc_TypeError, "a share has a topic, and six more");
            goto done;
        }
        int64_t count = number_in(PyTuple_GET_ITEM(share, 3)), size = number_in(PyTuple_GET_ITEM(share, 4)),
                ts = number_in(PyTuple_GET_ITEM(share, 5));
        int verdict = verdict_of(self, OF_TOPIC(topic, CONFIG));
        int is_heard = OF_TOPIC(topic, LISTENERS) ? PyObject_IsTrue(OF_TOPIC(topic, LISTENERS)) : -1;
        int is_waited = keys == Py_None ? 0 : OF(keys, KEYS, WAITERS) ? PyObject_IsTrue(OF(keys, KEYS, WAITERS)) : -1;
        if (verdict < 0 || is_heard < 0 || is_waited < 0 || (is_heard && PyList_Append(heard, topic)) ||
            (is_waited && PyList_Append(waited, keys)))
            goto done;
        if (verdict == LIMITED) {
            if (PyList_Append(limited, share)) goto done;
            continue;
        }
        int64_t head = number_in(OF_TOPIC(topic, HEAD)), live = number_in(OF_TOPIC(topic, LIVE_COUNT));
        change(&changes, &OF_TOPIC(topic, PENDING_COUNT), number_in(OF_TOPIC(topic, PENDING_COUNT)) - count);
        change(&changes, &OF_TOPIC(topic, PENDING_BYTES), number_in(OF_TOPIC(topic, PENDING_BYTES)) - size);
        if (!live) {
            change(&changes, &OF_TOPIC(topic, FLOOR), head + 1);
            change(&changes, &OF_TOPIC(topic, FLOOR_TS), ts);
        }
        change(&changes, &OF_TOPIC(topic, HEAD), head + count);
        change(&changes, &OF_TOPIC(topic, LIVE_COUNT), live + count);
        change(&changes, &OF_TOPIC(topic, LIVE_BYTES), number_in(OF_TOPIC(topic, LIVE_BYTES)) + size);
        change(&changes, &OF_TOPIC(topic, LAST_WRITE_TS), ts);
        if (changes.failed || PySet_Add(OF_TOPIC(topic, CHANGED), OF_TOPIC(topic, ID))) {
            forget_changes(&changes);
            goto done;
        }
        make_changes(&changes);
        records += count;
        bytes += size;
    }
    int is_usual = !PyList_GET_SIZE(limited) && !PyList_GET_SIZE(heard) && !PyList_GET_SIZE(waited);
    result = is_usual ? Py_NewRef(Py_None) : PyTuple_Pack(3, limited, heard, waited);
done:
    /* Also if it ends early: so many are to be seen. */
    add_to(&THE(TOTALS, RECORDS), records);
    add_to(&THE(TOTALS, BYTES), bytes);
    add_to(&THE(TOTALS, ALL_PENDING_BYTES), -bytes);
    Py_XDECREF(limited);
    Py_XDECREF(heard);
    Py_XDECREF(waited);
    return result;
}

static PyMethodDef together_methods[] = {
    {"append", (PyCFunction)(void (*)(void))together_append, METH_FASTCALL, NULL},
    {"commit", (PyCFunction)(void (*)(void))together_commit, METH_FASTCALL, NULL},
    {"publish", together_publish, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

PyTypeObject TogetherType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "topics.values._accelerator.Together",
    .tp_basicsize = sizeof(Together),
    .tp_new = together_new,
    .tp_dealloc = together_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = together_methods,
};
