/* Small writes to many topics, each put behind its topic's records: `log/write/together.py` says what that means, and
 * does the same without this file.
 *
 * A share of which anything is not as usual is left as it is, and to Python. What is done here is done whole: all that
 * takes memory comes first, and what was taken for nothing is given back.
 */
#include "accelerator.h"

enum {
    ID, ASSIGNED, RESERVED, RESERVE_ASKED, RESERVING, LAST_TS, PENDING_COUNT, PENDING_BYTES, PENDING_SYNC, RUNS, CONFIG,
    HEAD, FLOOR, FLOOR_TS, LIVE_COUNT, LIVE_BYTES, LAST_WRITE_TS, CHANGED, KEYS, LISTENERS, TOPIC_SLOTS
};
static const char *const topic_slots[] = {
    "id", "assigned", "reserved", "reserve_asked", "reserving", "last_ts", "pending_count", "pending_bytes",
    "pending_sync", "runs", "config", "head", "floor", "floor_ts", "live_count", "live_bytes", "last_write_ts",
    "changed", "keys", "listeners"};
enum {
    BASE, COUNT, RUN_LIVE_COUNT, RUN_LIVE_BYTES, RUN_LAST_TS, HOT, DEAD, FROZEN, EPHEMERAL, START_POSITION, RUN_SLOTS
};
static const char *const run_slots[] = {"base", "count", "live_count", "live_bytes",   "last_ts",
                                        "hot",  "dead",  "frozen",     "ephemeral", "start_position"};
enum { SIZE, WEIGHT, ROWS, ENDS, TS_STARTS, TS_VALUES, DATA_LENS, TAG_CODES, HOPS, HOT_SLOTS };
static const char *const hot_slots[] = {"size",      "weight",    "rows",      "ends", "ts_starts",
                                        "ts_values", "data_lens", "tag_codes", "hops"};

enum { BY_PLACE, CHUNKS, KEY_COUNT, KEYS_SLOTS };
static const char *const keys_slots[] = {"by_place", "chunks", "count"};
enum { DIGESTS, KEY_ROWS, IS_CLOSED, IS_KEPT, CHUNK_SLOTS };
static const char *const chunk_slots[] = {"digests", "rows", "is_closed", "is_kept"};

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
    PyTypeObject *topic_type, *run_type, *hot_type, *keys_type, *chunk_type, *array_type;
    Py_ssize_t of_topic[TOPIC_SLOTS], of_run[RUN_SLOTS], of_hot[HOT_SLOTS], of_keys[KEYS_SLOTS], of_chunk[CHUNK_SLOTS];
    PyObject *judge, *digest, *no_keys;
    /* Names of methods. */
    PyObject *append, *frombytes, *undo_extend, *withdraw;
    long most_seq, record_bytes;
    Judged judged[PLACES];
} Together;

#define OF_TOPIC(topic, name) SLOT(topic, self->of_topic[name])
#define OF_RUN(run, name) SLOT(run, self->of_run[name])
#define OF_HOT(hot, name) SLOT(hot, self->of_hot[name])

static void together_dealloc(PyObject *object) {
    Together *self = (Together *)object;
    for (int i = 0; i < PLACES; i++) Py_XDECREF(self->judged[i].config);
    Py_XDECREF(self->topic_type);
    Py_XDECREF(self->run_type);
    Py_XDECREF(self->hot_type);
    Py_XDECREF(self->keys_type);
    Py_XDECREF(self->chunk_type);
    Py_XDECREF(self->array_type);
    Py_XDECREF(self->judge);
    Py_XDECREF(self->digest);
    Py_XDECREF(self->no_keys);
    Py_XDECREF(self->append);
    Py_XDECREF(self->frombytes);
    Py_XDECREF(self->undo_extend);
    Py_XDECREF(self->withdraw);
    PyObject_Free(object);
}

/* Together((Topic, Run, HotColumns, TopicKeys, KeyChunk, array), judge, digest, most_seq, record_bytes) */
static PyObject *together_new(PyTypeObject *type, PyObject *args, PyObject *unused) {
    PyTypeObject *types[6];
    PyObject *judge, *digest;
    long most_seq, record_bytes;
    if (!PyArg_ParseTuple(args, "(O!O!O!O!O!O!)OOll:Together", &PyType_Type, &types[0], &PyType_Type, &types[1],
                          &PyType_Type, &types[2], &PyType_Type, &types[3], &PyType_Type, &types[4], &PyType_Type,
                          &types[5], &judge, &digest, &most_seq, &record_bytes))
        return NULL;
    Together *self = PyObject_New(Together, type);
    if (!self) return NULL;
    memset((char *)self + offsetof(Together, topic_type), 0, sizeof(Together) - offsetof(Together, topic_type));
    PyTypeObject **kept[6] = {&self->topic_type, &self->run_type,   &self->hot_type,
                              &self->keys_type,  &self->chunk_type, &self->array_type};
    for (int i = 0; i < 6; i++) *kept[i] = (PyTypeObject *)Py_NewRef(types[i]);
    self->judge = Py_NewRef(judge);
    self->digest = Py_NewRef(digest);
    self->most_seq = most_seq;
    self->record_bytes = record_bytes;
    self->no_keys = PyBytes_FromStringAndSize(NULL, 0);
    self->append = PyUnicode_InternFromString("append");
    self->frombytes = PyUnicode_InternFromString("frombytes");
    self->undo_extend = PyUnicode_InternFromString("undo_extend");
    self->withdraw = PyUnicode_InternFromString("withdraw");
    if (PyErr_Occurred() || !find_slots(self->topic_type, topic_slots, TOPIC_SLOTS, self->of_topic) ||
        !find_slots(self->run_type, run_slots, RUN_SLOTS, self->of_run) ||
        !find_slots(self->hot_type, hot_slots, HOT_SLOTS, self->of_hot) ||
        !find_slots(self->keys_type, keys_slots, KEYS_SLOTS, self->of_keys) ||
        !find_slots(self->chunk_type, chunk_slots, CHUNK_SLOTS, self->of_chunk)) {
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
    if (!Py_IS_TYPE(topic, self->topic_type)) return 0;
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
    if (!Py_IS_TYPE(*run, self->run_type)) return 0;
    hot = OF_RUN(*run, HOT);
    if (!hot || !Py_IS_TYPE(hot, self->hot_type) || OF_RUN(*run, DEAD) != Py_None || OF_RUN(*run, FROZEN) != Py_False ||
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
    PyObject *holder = OF_TOPIC(topic, KEYS), *chunks, *chunk, *head;
    Py_ssize_t count = PyList_GET_SIZE(given);
    if (!holder || !Py_IS_TYPE(holder, self->keys_type) || count >= PyList_GET_SIZE(turn->key_heads)) return 0;
    chunks = SLOT(holder, self->of_keys[CHUNKS]);
    keys->by_place = SLOT(holder, self->of_keys[BY_PLACE]);
    if (!chunks || !PyList_CheckExact(chunks) || !PyList_GET_SIZE(chunks) || !Py_IS_TYPE(keys->by_place, &PlacesType))
        return 0;
    chunk = PyList_GET_ITEM(chunks, PyList_GET_SIZE(chunks) - 1);
    if (!Py_IS_TYPE(chunk, self->chunk_type) || SLOT(chunk, self->of_chunk[IS_CLOSED]) != Py_False ||
        SLOT(chunk, self->of_chunk[IS_KEPT]) != Py_True ||
        !PyByteArray_CheckExact(SLOT(chunk, self->of_chunk[DIGESTS])))
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
    for (Py_ssize_t i = 0; i < count; i++, w += DIGEST_BYTES) {
        PyObject *key = PyList_GET_ITEM(given, i);
        if (!PyBytes_CheckExact(key) || PyBytes_GET_SIZE(key) > MOST_KEY) break;
        digest_of_key(turn->salt, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), w);
        if (take_place(keys->by_place, place_of(w), chunk) <= 0) break;
        keys->placed++;
    }
    if (keys->placed == count) return 1;
    leave_places(keys);
    return 0;
}

/* The records of the keys have their seqs; 0 if there is no memory for it. */
static int remember_keys(Together *self, const Turn *turn, Keys *keys, int64_t first) {
    PyObject *digests = SLOT(keys->chunk, self->of_chunk[DIGESTS]);
    Py_ssize_t before = PyByteArray_GET_SIZE(digests), bytes = DIGEST_BYTES * keys->count;
    int64_t row[3] = {first, turn->now, before / DIGEST_BYTES << RECORDS_BITS};
    PyObject *packed = PyBytes_FromStringAndSize((const char *)row, sizeof row);
    int done = packed && tell(SLOT(keys->chunk, self->of_chunk[KEY_ROWS]), self->frombytes, packed);
    Py_XDECREF(packed);
    if (!done || PyByteArray_Resize(digests, before + bytes)) return 0;
    memcpy(PyByteArray_AS_STRING(digests) + before, PyBytes_AS_STRING(keys->encoded) + keys->head_bytes, bytes);
    if (before >= FULL_CHUNK) put(&SLOT(keys->chunk, self->of_chunk[IS_CLOSED]), Py_NewRef(Py_True));
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
    hot = OF_RUN(run, HOT);
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
    int64_t remembered = keys.encoded ? number_in(SLOT(keys.holder, self->of_keys[KEY_COUNT])) + keys.count : 0;
    if (keys.encoded) change(&changes, &SLOT(keys.holder, self->of_keys[KEY_COUNT]), remembered);
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
        PyObject *error_type, *error, *traceback, *lists[2] = {turn->shares[is_synced], turn->frames[is_synced]};
        PyErr_Fetch(&error_type, &error, &traceback);
        for (int i = 0; i < is_listed; i++)
            PyList_SetSlice(lists[i], PyList_GET_SIZE(lists[i]) - 1, PY_SSIZE_T_MAX, NULL);
        PyErr_Restore(error_type, error, traceback);
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

/* append(wanted, by_name, held, touched, now, position, synced, max_events, max_bytes, max_keys, salt, key_heads,
 * shares, frames, synced shares, their frames, notable, sums) -> the indexes of what is left. What comes of the others
 * is put into the lists, `notable` being topics with something to be seen to; and into the sums: records, those with a
 * sync, bytes of data, weight, keys, topics with too many of them. Nothing can be refused once the first share has its
 * seqs. */
static PyObject *together_append(PyObject *object, PyObject *const *given, Py_ssize_t given_count) {
    enum { WANTED, BY_NAME, HELD, TOUCHED, NOW, POSITION, SYNCED_UPTO, MAX_EVENTS, MAX_BYTES, MAX_KEYS, SALT, KEY_HEADS,
           SHARES, FRAMES, SYNCED_SHARES, SYNCED_FRAMES, NOTABLE, SUMS, ALL };
    Together *self = (Together *)object;
    Wanted one;
    Py_buffer sums;
    int is_sound = given_count == ALL && PyList_CheckExact(given[WANTED]) && PyDict_CheckExact(given[BY_NAME]) &&
                   PySet_Check(given[HELD]) && PySet_Check(given[TOUCHED]) && PyBytes_CheckExact(given[SALT]) &&
                   PyBytes_GET_SIZE(given[SALT]) == SALT_BYTES && PyList_CheckExact(given[KEY_HEADS]);
    for (int i = SHARES; is_sound && i <= NOTABLE; i++) is_sound = PyList_CheckExact(given[i]);
    for (int i = NOW; is_sound && i <= MAX_KEYS; i++) is_sound = PyLong_CheckExact(given[i]);
    for (Py_ssize_t i = 0; is_sound && i < PyList_GET_SIZE(given[WANTED]); i++)
        is_sound = parse(PyList_GET_ITEM(given[WANTED], i), &one);
    if (!is_sound) {
        PyErr_SetString(PyExc_TypeError, "append: something else was wanted");
        return NULL;
    }
    if (PyObject_GetBuffer(given[SUMS], &sums, PyBUF_WRITABLE)) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(given[WANTED]), written = 0;
    PyObject *left = sums.len == 6 * sizeof(int64_t) ? all_indexes(count) : NULL;
    if (!left) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "append: sums are six");
        PyBuffer_Release(&sums);
        return NULL;
    }
    Turn turn = {.now = number_in(given[NOW]),
                 .position = number_in(given[POSITION]),
                 .synced = number_in(given[SYNCED_UPTO]),
                 .max_events = number_in(given[MAX_EVENTS]),
                 .max_bytes = number_in(given[MAX_BYTES]),
                 .max_keys = number_in(given[MAX_KEYS]),
                 .held = given[HELD],
                 .touched = given[TOUCHED],
                 .salt = (const unsigned char *)PyBytes_AS_STRING(given[SALT]),
                 .key_heads = given[KEY_HEADS],
                 .shares = {given[SHARES], given[SYNCED_SHARES]},
                 .frames = {given[FRAMES], given[SYNCED_FRAMES]},
                 .notable = given[NOTABLE]};
    for (Py_ssize_t i = 0; i < count; i++) {
        parse(PyList_GET_ITEM(given[WANTED], i), &one);
        PyObject *topic = PyDict_GetItemWithError(given[BY_NAME], one.name);
        int appended = topic ? append_share(self, &turn, topic, one.writers, one.bodies, one.keys) : 0;
        /* Without memory, it is for Python to say so. */
        PyErr_Clear();
        if (appended > 0) {
            PyList_SetSlice(left, i - written, i - written + 1, NULL);
            written++;
        }
    }
    int64_t all[6] = {turn.counts[0], turn.counts[1], turn.size, turn.added, turn.keyed, turn.crowded};
    memcpy(sums.buf, all, sizeof all);
    PyBuffer_Release(&sums);
    PyErr_Clear();
    return left;
}

/* --- showing ------------------------------------------------------------------------------------------------------ */

/* publish(shares) -> (limited, records, bytes, heard): what the shares have brought becomes visible, so many records
 * and bytes of data, but for those of topics that a limit has come to; and the topics that have listeners */
static PyObject *together_publish(PyObject *object, PyObject *shares) {
    Together *self = (Together *)object;
    if (!PyList_CheckExact(shares)) {
        PyErr_SetString(PyExc_TypeError, "publish(shares: list)");
        return NULL;
    }
    PyObject *limited = PyList_New(0), *heard = PyList_New(0);
    long long records = 0, bytes = 0;
    if (!limited || !heard) goto failed;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(shares); i++) {
        PyObject *share = PyList_GET_ITEM(shares, i), *topic;
        Changes changes = {.count = 0};
        int is_sound = PyTuple_CheckExact(share) && PyTuple_GET_SIZE(share) == 7 &&
                       Py_IS_TYPE(topic = PyTuple_GET_ITEM(share, 0), self->topic_type);
        if (!is_sound) {
            PyErr_SetString(PyExc_TypeError, "a share has a topic, and six more");
            goto failed;
        }
        int64_t count = number_in(PyTuple_GET_ITEM(share, 3)), size = number_in(PyTuple_GET_ITEM(share, 4)),
                ts = number_in(PyTuple_GET_ITEM(share, 5));
        int verdict = verdict_of(self, OF_TOPIC(topic, CONFIG));
        int is_heard = OF_TOPIC(topic, LISTENERS) ? PyObject_IsTrue(OF_TOPIC(topic, LISTENERS)) : -1;
        if (verdict < 0 || is_heard < 0 || (is_heard && PyList_Append(heard, topic))) goto failed;
        if (verdict == LIMITED) {
            if (PyList_Append(limited, share)) goto failed;
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
            goto failed;
        }
        make_changes(&changes);
        records += count;
        bytes += size;
    }
    return Py_BuildValue("NLLN", limited, records, bytes, heard);
failed:
    Py_XDECREF(limited);
    Py_XDECREF(heard);
    return NULL;
}

static PyMethodDef together_methods[] = {
    {"append", (PyCFunction)(void (*)(void))together_append, METH_FASTCALL, NULL},
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
