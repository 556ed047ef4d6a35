/* Idempotency keys: the digest of each, and who remembers it. `log/write/idempotency.py` does the same with `hashlib`
 * and a dictionary, which take more than twice the memory.
 */
#include "accelerator.h"

/* --- digests: BLAKE2b of 16 bytes, with a salt (RFC 7693) -------------------------------------------------------- */

enum { BLOCK = 128, ROUNDS = 12 };

static const uint64_t begin[8] = {0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
                                  0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
static const uint8_t order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

static inline uint64_t little(const unsigned char *from) {
    uint64_t value = 0;
#pragma GCC unroll 8
    for (int i = 7; i >= 0; i--) value = value << 8 | from[i];
    return value;
}

static inline uint64_t turned(uint64_t value, int by) { return value >> by | value << (64 - by); }

static inline void mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = turned(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = turned(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turned(v[b] ^ v[c], 63);
}

/* `done`: how many bytes there are up to the end of this block. */
static void compress(uint64_t state[8], const unsigned char block[BLOCK], uint64_t done, int is_last) {
    uint64_t v[16], m[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) m[i] = little(block + 8 * i);
    for (int i = 0; i < 8; i++) {
        v[i] = state[i];
        v[i + 8] = begin[i];
    }
    v[12] ^= done;
    if (is_last) v[14] = ~v[14];
/* Written out, all of it stays in registers, and nothing has to be looked up. */
#pragma GCC unroll 12
    for (int round = 0; round < ROUNDS; round++) {
        const uint8_t *s = order[round % 10];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) mix(v, i, i + 4, i + 8, i + 12, m[s[2 * i]], m[s[2 * i + 1]]);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            mix(v, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12, m[s[2 * i + 8]], m[s[2 * i + 9]]);
    }
    for (int i = 0; i < 8; i++) state[i] ^= v[i] ^ v[i + 8];
}

void digest_of_key(const unsigned char salt[SALT_BYTES], const char *key, size_t bytes, char to[DIGEST_BYTES]) {
    uint64_t state[8];
    unsigned char block[BLOCK];
    memcpy(state, begin, sizeof state);
    /* No key of its own, one leaf, one level. */
    state[0] ^= 0x01010000 ^ DIGEST_BYTES;
    state[4] ^= little(salt);
    state[5] ^= little(salt + 8);
    size_t at = 0;
    for (; bytes - at > BLOCK; at += BLOCK) compress(state, (const unsigned char *)key + at, at + BLOCK, 0);
    memset(block, 0, BLOCK);
    memcpy(block, key + at, bytes - at);
    compress(state, block, bytes, 1);
    for (int i = 0; i < DIGEST_BYTES; i++) to[i] = (char)(state[i / 8] >> 8 * (i % 8));
}

/* key_digest(salt, key) -> digest */
PyObject *key_digest(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    if (count != 2 || !PyBytes_CheckExact(given[0]) || PyBytes_GET_SIZE(given[0]) != SALT_BYTES ||
        !PyBytes_CheckExact(given[1])) {
        PyErr_SetString(PyExc_TypeError, "key_digest(salt: 16 bytes, key: bytes)");
        return NULL;
    }
    PyObject *digest = PyBytes_FromStringAndSize(NULL, DIGEST_BYTES);
    if (digest)
        digest_of_key((const unsigned char *)PyBytes_AS_STRING(given[0]), PyBytes_AS_STRING(given[1]),
                      PyBytes_GET_SIZE(given[1]), PyBytes_AS_STRING(digest));
    return digest;
}

/* --- places: which chunk has a key, by some bits of its digest --------------------------------------------------- */

enum { FIRST_ROOM = 16 };

/* An empty one has no chunk. */
typedef struct {
    uint64_t place;
    PyObject *chunk;
} Entry;

/* Those that would be at the same index lie one behind the other, and none of them behind an empty one. A place is as
 * good as chance, so its lowest bits are its index. */
typedef struct {
    PyObject_HEAD
    Entry *entries;
    size_t room, count;
} Places;

uint64_t place_of(const char *digest) { return little((const unsigned char *)digest) & ((1ULL << 60) - 1); }

/* The entry of a place, or the empty one where it would be. */
static Entry *entry_of(const Places *self, uint64_t place) {
    size_t mask = self->room - 1, at = place & mask;
    while (self->entries[at].chunk && self->entries[at].place != place) at = (at + 1) & mask;
    return &self->entries[at];
}

/* There is room for one more; 0 if there is no memory for that. */
static int make_room(Places *self) {
    if (3 * (self->count + 1) <= 2 * self->room) return 1;
    Entry *before = self->entries;
    size_t room_before = self->room, room = room_before ? 2 * room_before : FIRST_ROOM;
    Entry *entries = PyMem_RawCalloc(room, sizeof(Entry));
    if (!entries) return 0;
    self->entries = entries;
    self->room = room;
    for (size_t i = 0; i < room_before; i++)
        if (before[i].chunk) *entry_of(self, before[i].place) = before[i];
    PyMem_RawFree(before);
    return 1;
}

void expect_place(PyObject *object, uint64_t place) {
    const Places *self = (const Places *)object;
    if (self->room) __builtin_prefetch(&self->entries[place & (self->room - 1)], 1);
}

int take_place(PyObject *object, uint64_t place, PyObject *chunk) {
    Places *self = (Places *)object;
    if (!make_room(self)) return -1;
    Entry *entry = entry_of(self, place);
    if (entry->chunk) return 0;
    *entry = (Entry){place, Py_NewRef(chunk)};
    self->count++;
    return 1;
}

int leave_place(PyObject *object, uint64_t place) {
    Places *self = (Places *)object;
    if (!self->count) return 0;
    Entry *entry = entry_of(self, place);
    PyObject *chunk = entry->chunk;
    if (!chunk) return 0;
    /* What lies behind it moves up, unless it would come before its own index. */
    size_t mask = self->room - 1, empty = (size_t)(entry - self->entries);
    for (size_t at = (empty + 1) & mask; self->entries[at].chunk; at = (at + 1) & mask) {
        size_t wanted = self->entries[at].place & mask;
        if (((at - wanted) & mask) < ((at - empty) & mask)) continue;
        self->entries[empty] = self->entries[at];
        empty = at;
    }
    self->entries[empty].chunk = NULL;
    self->count--;
    Py_DECREF(chunk);
    return 1;
}

static PyObject *places_new(PyTypeObject *type, PyObject *args, PyObject *named) {
    if (!PyArg_ParseTuple(args, ":Places")) return NULL;
    Places *self = PyObject_New(Places, type);
    if (!self) return NULL;
    self->entries = NULL;
    self->room = self->count = 0;
    return (PyObject *)self;
}

static void places_dealloc(PyObject *object) {
    Places *self = (Places *)object;
    for (size_t i = 0; i < self->room; i++) Py_XDECREF(self->entries[i].chunk);
    PyMem_RawFree(self->entries);
    PyObject_Free(object);
}

static Py_ssize_t places_length(PyObject *self) { return (Py_ssize_t)((Places *)self)->count; }

/* 0 if it is none, and that is an exception. */
static int is_place(PyObject *given, uint64_t *place) {
    *place = PyLong_AsUnsignedLongLong(given);
    return *place != (uint64_t)-1 || !PyErr_Occurred();
}

/* get(place) -> chunk or None */
static PyObject *places_get(PyObject *object, PyObject *given) {
    Places *self = (Places *)object;
    uint64_t place;
    if (!is_place(given, &place)) return NULL;
    PyObject *chunk = self->count ? entry_of(self, place)->chunk : NULL;
    return Py_NewRef(chunk ? chunk : Py_None);
}

static int places_contains(PyObject *object, PyObject *given) {
    Places *self = (Places *)object;
    uint64_t place;
    if (!is_place(given, &place)) return -1;
    return self->count && entry_of(self, place)->chunk;
}

static int places_assign(PyObject *object, PyObject *given, PyObject *chunk) {
    Places *self = (Places *)object;
    uint64_t place;
    if (!is_place(given, &place)) return -1;
    if (!chunk) {
        if (leave_place(object, place)) return 0;
        PyErr_SetObject(PyExc_KeyError, given);
        return -1;
    }
    int taken = take_place(object, place, chunk);
    if (taken < 0) PyErr_NoMemory();
    if (!taken) put(&entry_of(self, place)->chunk, Py_NewRef(chunk));
    return taken < 0 ? -1 : 0;
}

/* keys() -> [place] */
static PyObject *places_keys(PyObject *object, PyObject *unused) {
    Places *self = (Places *)object;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < self->room; i++) {
        if (!self->entries[i].chunk) continue;
        PyObject *place = PyLong_FromUnsignedLongLong(self->entries[i].place);
        if (!place || PyList_Append(list, place)) Py_CLEAR(list);
        Py_XDECREF(place);
    }
    return list;
}

static PyMethodDef places_methods[] = {
    {"get", places_get, METH_O, NULL},
    {"keys", places_keys, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
static PyMappingMethods as_mapping = {.mp_length = places_length, .mp_ass_subscript = places_assign};
static PySequenceMethods as_sequence = {.sq_contains = places_contains};

PyTypeObject PlacesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "topics.values._accelerator.Places",
    .tp_basicsize = sizeof(Places),
    .tp_new = places_new,
    .tp_dealloc = places_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = places_methods,
    .tp_as_mapping = &as_mapping,
    .tp_as_sequence = &as_sequence,
};
