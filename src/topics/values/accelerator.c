/* The inner loops of the write path, for where Python is too slow: a write's records are found, checked and
 * rendered in one pass each; clients have what they write checked. `accelerator.py` says how it is used.
 *
 * Whatever is unusual is not decided here: `cut` and `gather` leave it out, and the caller, in Python, decides and
 * says what is wrong. So this file may be too strict, and never too lax. What it returns, it has checked.
 */
#include "accelerator.h"

#include <math.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The limits of the API; the caller compares them with its own before it uses any of this. */
enum { MAX_RECORDS = 10000, MAX_RECORD = 1 << 20, MAX_TAG = 256, MAX_NODE = 128, MAX_META = 320 };
/* Deeper values are left to the other parser, and its limit. */
enum { MAX_DEPTH = 64, MAX_BULK = 100000 };
/* Work on more than this lets other threads run meanwhile; for less, that would cost more than it gives. */
enum { LARGE_BYTES = 1 << 20 };
/* Names that come again and again are kept as strings, with their hash; longer ones are not. */
enum { KEPT_NAMES = 2048, KEPT_BYTES = 64 };

typedef const unsigned char *Text;

/* --- JSON: each function returns what lies behind what it has read, or NULL -------------------------------- */

#define EACH(byte) (0x0101010101010101ULL * (byte))
#define BELOW(word, byte) (((word) - EACH(byte)) & ~(word) & EACH(0x80))

static int hex(unsigned char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

static Text escape(Text p, Text end) {
    if (end - p < 2) return NULL;
    if (p[1] != 'u') return memchr("\"\\/bfnrt", p[1], 8) ? p + 2 : NULL;
    if (end - p < 6) return NULL;
    for (int i = 2; i < 6; i++)
        if (hex(p[i]) < 0) return NULL;
    /* Halves of a pair have rules of their own. */
    return hex(p[2]) == 13 && hex(p[3]) >= 8 ? NULL : p + 6;
}

/* Where the next byte is that is a quote, a backslash or below a blank, as far as many are looked at at once. */
static inline Text plain(Text p, Text end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f);
    while (end - p >= 16) {
        __m128i some = _mm_loadu_si128((const __m128i *)p);
        __m128i found = _mm_or_si128(_mm_cmpeq_epi8(some, quote), _mm_cmpeq_epi8(some, slash));
        int at = _mm_movemask_epi8(_mm_or_si128(found, _mm_cmpeq_epi8(_mm_min_epu8(some, control), some)));
        if (at) return p + __builtin_ctz((unsigned)at);
        p += 16;
    }
#elif defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && defined(__GNUC__)
    while (end - p >= 8) {
        uint64_t some, found;
        memcpy(&some, p, 8);
        /* Only the first one found is exact. */
        found = BELOW(some ^ EACH('"'), 1) | BELOW(some ^ EACH('\\'), 1) | BELOW(some, 0x20);
        if (found) return p + (__builtin_ctzll(found) >> 3);
        p += 8;
    }
#endif
    return p;
}

/* `p` is behind the opening quote. */
static Text string(Text p, Text end) {
    for (;;) {
        p = plain(p, end);
        while (p < end && *p != '"' && *p != '\\' && *p >= 0x20) p++;
        if (p >= end || *p < 0x20) return NULL;
        if (*p == '"') return p + 1;
        if (!(p = escape(p, end))) return NULL;
    }
}

static Text digits(Text p, Text end) {
    if (p >= end || *p < '0' || *p > '9') return NULL;
    while (p < end && *p >= '0' && *p <= '9') p++;
    return p;
}

static Text number(Text p, Text end) {
    if (p < end && *p == '-') p++;
    if (p < end && *p == '0') p++;
    else if (!(p = digits(p, end))) return NULL;
    if (p < end && *p == '.' && !(p = digits(p + 1, end))) return NULL;
    if (p < end && (*p | 32) == 'e') {
        p++;
        if (p < end && (*p == '+' || *p == '-')) p++;
        p = digits(p, end);
    }
    return p;
}

static Text word(Text p, Text end, const char *expected, Py_ssize_t length) {
    return end - p >= length && !memcmp(p, expected, length) ? p + length : NULL;
}

/* One value without a blank outside of its strings. */
static Text value(Text p, Text end, int depth) {
    if (p >= end || depth > MAX_DEPTH) return NULL;
    switch (*p) {
    case '"':
        return string(p + 1, end);
    case 't':
        return word(p, end, "true", 4);
    case 'f':
        return word(p, end, "false", 5);
    case 'n':
        return word(p, end, "null", 4);
    case '[':
        if (end - p >= 2 && p[1] == ']') return p + 2;
        do
            p = value(p + 1, end, depth + 1);
        while (p && p < end && *p == ',');
        return p && p < end && *p == ']' ? p + 1 : NULL;
    case '{':
        if (end - p >= 2 && p[1] == '}') return p + 2;
        do {
            if (end - p < 2 || p[1] != '"' || !(p = string(p + 2, end))) return NULL;
            if (p >= end || *p != ':') return NULL;
            p = value(p + 1, end, depth + 1);
        } while (p && p < end && *p == ',');
        return p && p < end && *p == '}' ? p + 1 : NULL;
    default:
        return number(p, end);
    }
}

/* --- numbers as text --------------------------------------------------------------------------------------- */

int decimal(char *to, uint64_t n) {
    char reversed[MOST_DIGITS];
    int length = 0;
    do reversed[length++] = (char)('0' + n % 10);
    while (n /= 10);
    for (int i = 0; i < length; i++) to[i] = reversed[length - 1 - i];
    return length;
}

/* The next number; returns how many digits it has. */
static int count_up(char *text, int length) {
    int i = length - 1;
    while (i >= 0 && text[i] == '9') text[i--] = '0';
    if (i >= 0) {
        text[i]++;
        return length;
    }
    memmove(text + 1, text, length);
    text[0] = '1';
    return length + 1;
}

/* --- records ----------------------------------------------------------------------------------------------- */

typedef struct {
    /* Data and meta as they are rendered; tag and node without their quotes. What is not there is NULL. */
    Text data, meta, tag, node;
    uint32_t data_bytes, meta_bytes, tag_bytes, node_bytes;
} Record;

typedef struct {
    PyObject_HEAD
    /* What the records point into. */
    PyObject *owner;
    Py_buffer buffer;
    Record *records;
    Py_ssize_t count, room;
    uint64_t data_bytes, meta_bytes, node_bytes, tag_bytes;
    Py_ssize_t metas, nodes, tags;
} Records;

static PyTypeObject RecordsType;

static Records *new_records(PyObject *owner, Py_ssize_t room) {
    Records *self = PyObject_New(Records, &RecordsType);
    if (!self) return NULL;
    memset((char *)self + offsetof(Records, owner), 0, sizeof(Records) - offsetof(Records, owner));
    self->room = room > 0 ? room : 1;
    /* Grows while others have the interpreter. */
    self->records = PyMem_RawMalloc(sizeof(Record) * self->room);
    self->owner = Py_NewRef(owner);
    if (!self->records) {
        Py_DECREF(self);
        PyErr_NoMemory();
        return NULL;
    }
    return self;
}

static void records_dealloc(PyObject *object) {
    Records *self = (Records *)object;
    if (self->buffer.obj) PyBuffer_Release(&self->buffer);
    PyMem_RawFree(self->records);
    Py_XDECREF(self->owner);
    PyObject_Free(self);
}

/* 0 if it does not fit in memory. */
static int add(Records *self, const Record *record) {
    if (self->count == self->room) {
        Record *larger = PyMem_RawRealloc(self->records, sizeof(Record) * self->room * 2);
        if (!larger) return 0;
        self->records = larger;
        self->room *= 2;
    }
    self->records[self->count++] = *record;
    self->data_bytes += record->data_bytes;
    self->meta_bytes += record->meta_bytes;
    self->node_bytes += record->node_bytes;
    self->tag_bytes += record->tag_bytes;
    self->metas += record->meta != NULL;
    self->nodes += record->node != NULL;
    self->tags += record->tag != NULL;
    return 1;
}

/* Those from `count` on are taken back. */
static void forget_above(Records *self, Py_ssize_t count) {
    while (self->count > count) {
        const Record *last = &self->records[--self->count];
        self->data_bytes -= last->data_bytes;
        self->meta_bytes -= last->meta_bytes;
        self->node_bytes -= last->node_bytes;
        self->tag_bytes -= last->tag_bytes;
        self->metas -= last->meta != NULL;
        self->nodes -= last->node != NULL;
        self->tags -= last->tag != NULL;
    }
}

/* A short text without escapes, or null: `p` is at its value. */
static Text name(Text p, Text end, Text *text, uint32_t *bytes, Py_ssize_t most) {
    Text start = p + 1, stop;
    if (p >= end) return NULL;
    if (*p != '"') return word(p, end, "null", 4);
    stop = string(start, end);
    if (!stop || stop - 1 - start > most || memchr(start, '\\', stop - 1 - start)) return NULL;
    *text = start;
    *bytes = (uint32_t)(stop - 1 - start);
    return stop;
}

/* `p` is at the opening brace. Keys may come in any order, each once, and no others. */
static Text record(Text p, Text end, Record *found) {
    Text start;
    unsigned seen = 0, key;
    memset(found, 0, sizeof *found);
    if (p >= end || *p != '{') return NULL;
    do {
        start = ++p;
        if ((p = word(start, end, "\"data\":", 7))) key = 1;
        else if ((p = word(start, end, "\"tag\":", 6))) key = 2;
        else if ((p = word(start, end, "\"node\":", 7))) key = 4;
        else if ((p = word(start, end, "\"meta\":", 7))) key = 8;
        else return NULL;
        if (seen & key) return NULL;
        seen |= key;
        start = p;
        if (key == 2) p = name(p, end, &found->tag, &found->tag_bytes, MAX_TAG);
        else if (key == 4) p = name(p, end, &found->node, &found->node_bytes, MAX_NODE);
        else p = value(p, end, 0);
        if (!p) return NULL;
        if (key == 1) {
            if (p - start > MAX_RECORD) return NULL;
            found->data = start;
            found->data_bytes = (uint32_t)(p - start);
        } else if (key == 8 && *start == '{') {
            /* So short that it cannot have too many keys. */
            if (p - start > MAX_META) return NULL;
            found->meta = start;
            found->meta_bytes = (uint32_t)(p - start);
        } else if (key == 8 && *start != 'n') {
            return NULL;
        }
    } while (p < end && *p == ',');
    if (p >= end || *p != '}' || !(seen & 1)) return NULL;
    return found->data_bytes + found->meta_bytes > MAX_RECORD ? NULL : p + 1;
}

/* All records of the array from `p` on, of which the first one was found; 0 if one is unusual. Negative if there
 * is no memory. */
static int cut_all(Records *self, Text p, Text end, Record *found) {
    for (;;) {
        if (!add(self, found)) return -1;
        if (p >= end || *p != ',' || self->count == MAX_RECORDS || !(p = record(p + 1, end, found))) break;
    }
    return p && end - p == 1 && *p == ']';
}

static PyObject *cut(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    Py_ssize_t start, stop, room;
    Records *self;
    Record found;
    Text p, end;
    int done;
    if (count != 3 || !PyBytes_Check(given[0])) {
        PyErr_SetString(PyExc_TypeError, "cut(body: bytes, start: int, stop: int)");
        return NULL;
    }
    start = PyLong_AsSsize_t(given[1]);
    stop = PyLong_AsSsize_t(given[2]);
    if (PyErr_Occurred()) return NULL;
    if (start < 0 || stop > PyBytes_GET_SIZE(given[0]) || stop - start < 2) Py_RETURN_NONE;
    p = (Text)PyBytes_AS_STRING(given[0]) + start;
    end = (Text)PyBytes_AS_STRING(given[0]) + stop;
    if (*p != '[' || !(p = record(p + 1, end, &found))) Py_RETURN_NONE;
    /* As many as there would be if all were as long as the first. */
    room = (stop - start) / (p - ((Text)PyBytes_AS_STRING(given[0]) + start)) + 1;
    if (!(self = new_records(given[0], room < MAX_RECORDS ? room : MAX_RECORDS))) return NULL;
    if (stop - start > LARGE_BYTES) {
        Py_BEGIN_ALLOW_THREADS
        done = cut_all(self, p, end, &found);
        Py_END_ALLOW_THREADS
    } else {
        done = cut_all(self, p, end, &found);
    }
    if (done > 0) return (PyObject *)self;
    Py_DECREF(self);
    if (done < 0) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* Whether this is text that Python would take: most of it is ASCII, and need not be asked. */
static int is_utf8(Text p, Text end) {
    for (Text at = p; at < end; at++)
        if (*at >= 0x80) {
            PyObject *decoded = PyUnicode_DecodeUTF8((const char *)p, end - p, NULL);
            if (!decoded) PyErr_Clear();
            Py_XDECREF(decoded);
            return decoded != NULL;
        }
    return 1;
}

/* Whether nothing is left of a body but its end. Who writes only where there is a topic may say so: there is one. */
static int is_end(Text p, Text end) {
    Text rest = p < end && *p == ']' ? p + 1 : NULL;
    if (rest && end - rest > 1) rest = word(rest, end, ",\"create\":false", 15);
    return rest && end - rest == 1 && *rest == '}';
}

/* The records of a body for a topic that is there, if it has nothing else, appended to `self`; returns how many, 0 if
 * anything is unusual, -1 if they do not fit in memory. */
static Py_ssize_t add_body(Records *self, PyObject *body) {
    Text p = (Text)PyBytes_AS_STRING(body), end = p + PyBytes_GET_SIZE(body);
    Py_ssize_t before = self->count;
    Record found;
    if (!(p = word(p, end, "{\"records\":[", 12))) return 0;
    for (;;) {
        if (self->count - before == MAX_RECORDS || !(p = record(p, end, &found))) break;
        if (!add(self, &found)) return -1;
        if (p < end && *p == ',') p++;
        else break;
    }
    if (p && is_end(p, end) && is_utf8((Text)PyBytes_AS_STRING(body), end))
        return self->count - before;
    forget_above(self, before);
    return 0;
}

/* gather(bodies) -> (records of all, how many each body has, which bodies are unusual). No records: None. One of
 * each: None instead of their numbers. */
static PyObject *gather(PyObject *module, PyObject *list) {
    PyObject *owner, *counts = NULL, *odd = NULL, *result = NULL;
    Records *self = NULL;
    int all_single = 1;
    if (!PyList_CheckExact(list)) {
        PyErr_SetString(PyExc_TypeError, "gather(bodies: list[bytes])");
        return NULL;
    }
    /* A tuple, which nobody changes. */
    if (!(owner = PyList_AsTuple(list))) return NULL;
    counts = PyList_New(0);
    odd = PyList_New(0);
    self = new_records(owner, PyTuple_GET_SIZE(owner));
    if (!self || !counts || !odd) goto done;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(owner); i++) {
        PyObject *body = PyTuple_GET_ITEM(owner, i), *number;
        if (!PyBytes_Check(body)) {
            PyErr_SetString(PyExc_TypeError, "gather(bodies: list[bytes])");
            goto done;
        }
        Py_ssize_t added = add_body(self, body);
        if (added < 0) {
            PyErr_NoMemory();
            goto done;
        }
        all_single &= added <= 1;
        if (!(number = PyLong_FromSsize_t(added ? added : i))) goto done;
        int failed = PyList_Append(added ? counts : odd, number);
        Py_DECREF(number);
        if (failed) goto done;
    }
    result = PyTuple_Pack(3, self->count ? (PyObject *)self : Py_None, all_single ? Py_None : counts, odd);
done:
    Py_XDECREF(owner);
    Py_XDECREF(counts);
    Py_XDECREF(odd);
    Py_XDECREF(self);
    return result;
}

static PyObject *cells(PyObject *module, PyObject *args) {
    PyObject *texts;
    Py_buffer offsets;
    Records *self;
    Record plain = {0};
    Py_ssize_t count, i;
    if (!PyArg_ParseTuple(args, "Oy*:cells", &texts, &offsets)) return NULL;
    count = offsets.len / 4 - 1;
    self = new_records(texts, count);
    if (!self || PyObject_GetBuffer(texts, &self->buffer, PyBUF_SIMPLE)) {
        PyBuffer_Release(&offsets);
        Py_XDECREF(self);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    for (i = 0; i < count; i++) {
        int32_t edges[2];
        Text p, end;
        memcpy(edges, (char *)offsets.buf + 4 * i, 8);
        if (edges[0] < 0 || edges[1] < edges[0] || edges[1] > self->buffer.len) break;
        p = (Text)self->buffer.buf + edges[0];
        end = (Text)self->buffer.buf + edges[1];
        if (end - p > MAX_RECORD || value(p, end, 0) != end) break;
        plain.data = p;
        plain.data_bytes = (uint32_t)(end - p);
        add(self, &plain); /* there is room for it */
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&offsets);
    if (i == count && count > 0) return (PyObject *)self;
    Py_DECREF(self);
    Py_RETURN_NONE;
}

/* --- rendering --------------------------------------------------------------------------------------------- */

/* MessagePack: the head of a list, and a text or nothing. */
static char *put_count(char *w, Py_ssize_t count) {
    if (count < 16) {
        *w++ = (char)(0x90 | count);
    } else if (count < 1 << 16) {
        *w++ = (char)0xdc;
        *w++ = (char)(count >> 8);
        *w++ = (char)count;
    } else {
        *w++ = (char)0xdd;
        for (int shift = 24; shift >= 0; shift -= 8) *w++ = (char)(count >> shift);
    }
    return w;
}

static char *put_name(char *w, Text text, Py_ssize_t bytes) {
    if (!text) {
        *w++ = (char)0xc0;
        return w;
    }
    if (bytes < 32) {
        *w++ = (char)(0xa0 | bytes);
    } else if (bytes < 1 << 8) {
        *w++ = (char)0xd9;
        *w++ = (char)bytes;
    } else {
        *w++ = (char)0xda;
        *w++ = (char)(bytes >> 8);
        *w++ = (char)bytes;
    }
    return PUT(text, bytes);
}

enum { HAS_META = 1, HAS_TAGS = 2, HAS_NODES = 4 };

/* Returns where it ends. `middle` stands between a row's seq and what the record holds. */
static char *put_payload(const Records *self, char *start, char *end_at, uint64_t first, const char *middle,
                         int middle_bytes, uint32_t lengths[2]) {
    char seq[MOST_DIGITS + 1], *w = start + 8, *rows = w;
    int seq_bytes = decimal(seq, first);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        const Record *r = &self->records[i];
        PUT_ALL("{\"$seq\":");
        PUT(seq, seq_bytes);
        PUT(middle, middle_bytes);
        if (r->node) {
            PUT_ALL(",\"$node\":\"");
            PUT(r->node, r->node_bytes);
            *w++ = '"';
        }
        PUT_ALL(",\"data\":");
        PUT(r->data, r->data_bytes);
        if (r->meta) {
            PUT_ALL(",\"meta\":");
            PUT(r->meta, r->meta_bytes);
        }
        PUT_ALL("}\n");
        uint32_t end = (uint32_t)(w - rows);
        memcpy(end_at + 4 * i, &end, 4);
        seq_bytes = count_up(seq, seq_bytes);
    }
    lengths[0] = (uint32_t)(w - rows);
    lengths[1] = 0;
    for (Py_ssize_t i = 0; i < self->count; i++) PUT(&self->records[i].data_bytes, 4);
    if (self->metas)
        for (Py_ssize_t i = 0; i < self->count; i++) PUT(&self->records[i].meta_bytes, 4);
    if (self->tags) {
        char *before = w;
        w = put_count(w, self->count);
        for (Py_ssize_t i = 0; i < self->count; i++)
            w = put_name(w, self->records[i].tag, self->records[i].tag_bytes);
        lengths[1] = (uint32_t)(w - before);
    }
    if (self->nodes) {
        w = put_count(w, self->count);
        for (Py_ssize_t i = 0; i < self->count; i++)
            w = put_name(w, self->records[i].node, self->records[i].node_bytes);
    }
    memcpy(start, lengths, 8);
    return w;
}

/* What stands between the seq of a row and what its record holds; returns its length. */
static int put_middle(char middle[64], uint64_t ts) {
    memcpy(middle, ",\"$ts\":", 7);
    return 7 + decimal(middle + 7, ts);
}

/* What a payload takes, or a little less: as long as the last seq, all seqs together are as long as can be. */
static uint64_t most_bytes(const Records *self, uint64_t first, int middle_bytes) {
    char last[MOST_DIGITS];
    int seq_bytes = decimal(last, first + (uint64_t)self->count - 1);
    uint64_t row_bytes = (uint64_t)self->count * (8 + seq_bytes + middle_bytes + 8 + 2) + self->data_bytes +
                         self->meta_bytes + 8 * (uint64_t)self->metas + self->node_bytes + 11 * (uint64_t)self->nodes;
    uint64_t most = 8 + row_bytes + 4 * (uint64_t)self->count * (1 + (self->metas > 0));
    if (self->tags) most += 5 + 3 * (uint64_t)self->count + self->tag_bytes;
    if (self->nodes) most += 5 + 3 * (uint64_t)self->count + self->node_bytes;
    return most;
}

/* payload(first_seq, ts) -> (payload, bytes of rows, where each row ends, flags), as `append_frame.py` describes it.
 * A large one is a bytearray: its seqs may be put right later on. */
static PyObject *payload(PyObject *object, PyObject *const *given, Py_ssize_t given_count) {
    Records *self = (Records *)object;
    PyObject *out, *ends, *result;
    if (given_count != 2) {
        PyErr_SetString(PyExc_TypeError, "payload(first_seq: int, ts: int)");
        return NULL;
    }
    uint64_t first = PyLong_AsUnsignedLongLong(given[0]), ts = PyLong_AsUnsignedLongLong(given[1]);
    if (PyErr_Occurred()) return NULL;
    if (first > INT64_MAX || ts > INT64_MAX) {
        PyErr_SetString(PyExc_OverflowError, "seqs and times have 63 bits");
        return NULL;
    }
    char middle[64];
    int middle_bytes = put_middle(middle, ts);
    uint64_t most = most_bytes(self, first, middle_bytes);
    if (most > UINT32_MAX) {
        PyErr_NoMemory();
        return NULL;
    }
    int is_large = most > LARGE_BYTES;
    out = is_large ? PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)most)
                   : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)most);
    ends = PyBytes_FromStringAndSize(NULL, 4 * self->count);
    if (!out || !ends) goto failed;
    char *start = is_large ? PyByteArray_AS_STRING(out) : PyBytes_AS_STRING(out);
    char *end_at = PyBytes_AS_STRING(ends), *w;
    uint32_t lengths[2];
    if (is_large) {
        Py_BEGIN_ALLOW_THREADS
        w = put_payload(self, start, end_at, first, middle, middle_bytes, lengths);
        Py_END_ALLOW_THREADS
    } else {
        w = put_payload(self, start, end_at, first, middle, middle_bytes, lengths);
    }
    if ((uint64_t)(w - start) != most && (is_large ? PyByteArray_Resize(out, w - start) : _PyBytes_Resize(&out, w - start)))
        goto failed;
    result = Py_BuildValue("NnNi", out, (Py_ssize_t)lengths[0], ends,
                           (self->metas ? HAS_META : 0) | (self->tags ? HAS_TAGS : 0) | (self->nodes ? HAS_NODES : 0));
    return result;
failed:
    Py_XDECREF(out);
    Py_XDECREF(ends);
    return NULL;
}

static PyObject *lengths_of(Records *self, size_t field) {
    PyObject *out = PyBytes_FromStringAndSize(NULL, 4 * self->count);
    if (!out) return NULL;
    for (Py_ssize_t i = 0; i < self->count; i++)
        memcpy(PyBytes_AS_STRING(out) + 4 * i, (char *)&self->records[i] + field, 4);
    return out;
}

static PyObject *data_lens(PyObject *self, PyObject *unused) {
    return lengths_of((Records *)self, offsetof(Record, data_bytes));
}

static PyObject *meta_lens(PyObject *self, PyObject *unused) {
    return lengths_of((Records *)self, offsetof(Record, meta_bytes));
}

/* --- names ------------------------------------------------------------------------------------------------- */

/* Each in the place that its bytes say; another one with the same place takes it over. */
static PyObject *kept_names[KEPT_NAMES];

static PyObject *name_of(Text text, Py_ssize_t bytes) {
    PyObject **place, *made;
    uint64_t hash = 14695981039346656037ULL;
    const char *held;
    Py_ssize_t held_bytes;
    if (!text) return Py_NewRef(Py_None);
    if (bytes > KEPT_BYTES) return PyUnicode_DecodeUTF8((const char *)text, bytes, NULL);
    for (Py_ssize_t i = 0; i < bytes; i++) hash = (hash ^ text[i]) * 1099511628211ULL;
    place = &kept_names[(hash ^ hash >> 32) & (KEPT_NAMES - 1)];
    if (*place) {
        held = PyUnicode_AsUTF8AndSize(*place, &held_bytes);
        if (held && held_bytes == bytes && !memcmp(held, text, bytes)) return Py_NewRef(*place);
        PyErr_Clear();
    }
    made = PyUnicode_DecodeUTF8((const char *)text, bytes, NULL);
    if (made) Py_XSETREF(*place, Py_NewRef(made));
    return made;
}

static PyObject *names_of(Records *self, int nodes) {
    PyObject *list = PyList_New(self->count);
    for (Py_ssize_t i = 0; list && i < self->count; i++) {
        const Record *r = &self->records[i];
        PyObject *one = nodes ? name_of(r->node, r->node_bytes) : name_of(r->tag, r->tag_bytes);
        if (one) PyList_SET_ITEM(list, i, one);
        else Py_CLEAR(list);
    }
    return list;
}

static PyObject *tags(PyObject *self, PyObject *unused) { return names_of((Records *)self, 0); }

static PyObject *nodes(PyObject *self, PyObject *unused) { return names_of((Records *)self, 1); }

/* Every record without a node gets this one. False if it is too long, or stands otherwise in JSON. */
static PyObject *give_node(PyObject *object, PyObject *node) {
    Records *self = (Records *)object;
    Py_ssize_t bytes;
    const char *text;
    if (!PyUnicode_CheckExact(node)) {
        PyErr_SetString(PyExc_TypeError, "give_node(node: str)");
        return NULL;
    }
    if (!(text = PyUnicode_AsUTF8AndSize(node, &bytes))) return NULL;
    int is_plain = bytes <= MAX_NODE;
    for (Py_ssize_t i = 0; i < bytes; i++)
        is_plain &= text[i] != '"' && text[i] != '\\' && (unsigned char)text[i] >= 0x20;
    if (!is_plain) Py_RETURN_FALSE;
    PyObject *both = PyTuple_Pack(2, self->owner, node);
    if (!both) return NULL;
    Py_SETREF(self->owner, both);
    for (Py_ssize_t i = 0; i < self->count; i++) {
        Record *r = &self->records[i];
        if (r->node) continue;
        r->node = (Text)text;
        r->node_bytes = (uint32_t)bytes;
        self->node_bytes += (uint64_t)bytes;
        self->nodes++;
    }
    Py_RETURN_TRUE;
}

/* encode(values, codes, names) -> bytes: the number of each name, new ones being added; 0 for None. In as few
 * bytes each as the highest number takes, which is that of the last name. */
static PyObject *encode(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    if (count != 3 || !PyList_CheckExact(given[0]) || !PyDict_CheckExact(given[1]) || !PyList_CheckExact(given[2])) {
        PyErr_SetString(PyExc_TypeError, "encode(values: list, codes: dict, names: list)");
        return NULL;
    }
    Py_ssize_t number = PyList_GET_SIZE(given[0]), i;
    PyObject *out = NULL;
    uint32_t *numbers = PyMem_Malloc(4 * (number + 1));
    if (!numbers) return PyErr_NoMemory();
    for (i = 0; i < number; i++) {
        PyObject *one = PyList_GET_ITEM(given[0], i), *code;
        numbers[i] = 0;
        if (one == Py_None) continue;
        if (!PyUnicode_CheckExact(one)) {
            PyErr_SetString(PyExc_TypeError, "a name is a str");
            goto done;
        }
        if ((code = PyDict_GetItemWithError(given[1], one))) {
            numbers[i] = (uint32_t)PyLong_AsUnsignedLong(code);
            if (PyErr_Occurred()) goto done;
            continue;
        }
        if (PyErr_Occurred() || PyList_Append(given[2], one)) goto done;
        numbers[i] = (uint32_t)PyList_GET_SIZE(given[2]);
        if (!(code = PyLong_FromUnsignedLong(numbers[i]))) goto done;
        int failed = PyDict_SetItem(given[1], one, code);
        Py_DECREF(code);
        if (failed) goto done;
    }
    Py_ssize_t highest = PyList_GET_SIZE(given[2]);
    int width = highest < 1 << 8 ? 1 : highest < 1 << 16 ? 2 : 4;
    if (!(out = PyBytes_FromStringAndSize(NULL, width * number))) goto done;
    char *w = PyBytes_AS_STRING(out);
    for (i = 0; i < number; i++) {
        uint8_t byte = (uint8_t)numbers[i];
        uint16_t half = (uint16_t)numbers[i];
        if (width == 1) PUT(&byte, 1);
        else if (width == 2) PUT(&half, 2);
        else PUT(&numbers[i], 4);
    }
done:
    PyMem_Free(numbers);
    return out;
}

/* Puts an offset behind others, as u32; 0 if it fails. */
static int put_offset(PyObject *offsets, uint32_t offset) {
    Py_ssize_t size = PyByteArray_GET_SIZE(offsets);
    if (PyByteArray_Resize(offsets, size + 4)) return 0;
    memcpy(PyByteArray_AS_STRING(offsets) + size, &offset, 4);
    return 1;
}

/* post(tags, offset, postings, fresh): where each tag occurs, as `tags.py` describes it. */
static PyObject *post(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    if (count != 4 || !PyList_CheckExact(given[0]) || !PyDict_CheckExact(given[2]) || !PyList_CheckExact(given[3])) {
        PyErr_SetString(PyExc_TypeError, "post(tags: list, offset: int, postings: dict, fresh: list)");
        return NULL;
    }
    uint32_t offset = (uint32_t)PyLong_AsUnsignedLong(given[1]);
    if (PyErr_Occurred()) return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(given[0]); i++, offset++) {
        PyObject *tag = PyList_GET_ITEM(given[0], i), *held;
        if (tag == Py_None) continue;
        if (!PyUnicode_CheckExact(tag)) {
            PyErr_SetString(PyExc_TypeError, "a tag is a str");
            return NULL;
        }
        held = PyDict_GetItemWithError(given[2], tag);
        if (held && PyByteArray_CheckExact(held)) {
            if (!put_offset(held, offset)) return NULL;
            continue;
        }
        if (PyErr_Occurred()) return NULL;
        PyObject *first = held ? PyByteArray_FromStringAndSize(NULL, 0) : PyLong_FromUnsignedLong(offset);
        int failed = !first;
        if (first && held) {
            uint32_t other = (uint32_t)PyLong_AsUnsignedLong(held);
            failed = PyErr_Occurred() || !put_offset(first, other) || !put_offset(first, offset);
        }
        failed = failed || PyDict_SetItem(given[2], tag, first) || (!held && PyList_Append(given[3], tag));
        Py_XDECREF(first);
        if (failed) return NULL;
    }
    Py_RETURN_NONE;
}

SeqAnswer seq_answer(const char *before, Py_ssize_t before_bytes, uint64_t seq, PyObject *after) {
    SeqAnswer answer = {.before = before,
                        .after = PyBytes_AS_STRING(after),
                        .before_bytes = before_bytes,
                        .after_bytes = PyBytes_GET_SIZE(after)};
    answer.seq_bytes = decimal(answer.seq, seq);
    return answer;
}

Py_ssize_t seq_answer_bytes(const SeqAnswer *answer) {
    return answer->before_bytes + answer->after_bytes + 4 * answer->seq_bytes + 12 + 9 + 13;
}

char *put_seq_answer(char *w, const SeqAnswer *answer) {
    PUT(answer->before, answer->before_bytes);
    PUT(answer->seq, answer->seq_bytes);
    PUT_ALL(",\"last_seq\":");
    PUT(answer->seq, answer->seq_bytes);
    PUT_ALL(",\"seqs\":[");
    PUT(answer->seq, answer->seq_bytes);
    PUT_ALL("],\"head_seq\":");
    PUT(answer->seq, answer->seq_bytes);
    PUT(answer->after, answer->after_bytes);
    return w;
}

void next_seq(SeqAnswer *answer) { answer->seq_bytes = count_up(answer->seq, answer->seq_bytes); }

/* answers(before, first, count, after) -> list: what each of so many writers of one record is told */
static PyObject *answers(PyObject *module, PyObject *const *given, Py_ssize_t given_count) {
    if (given_count != 4 || !PyBytes_CheckExact(given[0]) || !PyBytes_CheckExact(given[3])) {
        PyErr_SetString(PyExc_TypeError, "answers(before: bytes, first: int, count: int, after: bytes)");
        return NULL;
    }
    uint64_t first = PyLong_AsUnsignedLongLong(given[1]);
    Py_ssize_t count = PyLong_AsSsize_t(given[2]);
    if (PyErr_Occurred()) return NULL;
    if (count < 0 || count > MAX_BULK || first > INT64_MAX) {
        PyErr_SetString(PyExc_ValueError, "so many seqs are never given out at once");
        return NULL;
    }
    SeqAnswer answer = seq_answer(PyBytes_AS_STRING(given[0]), PyBytes_GET_SIZE(given[0]), first, given[3]);
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list && i < count; i++, next_seq(&answer)) {
        PyObject *one = PyBytes_FromStringAndSize(NULL, seq_answer_bytes(&answer));
        if (one) put_seq_answer(PyBytes_AS_STRING(one), &answer);
        if (one) PyList_SET_ITEM(list, i, one);
        else Py_CLEAR(list);
    }
    return list;
}

/* ends_behind(ends, offset) -> the same, each so much further on */
static PyObject *ends_behind(PyObject *module, PyObject *const *given, Py_ssize_t given_count) {
    if (given_count != 2 || !PyBytes_CheckExact(given[0])) {
        PyErr_SetString(PyExc_TypeError, "ends_behind(ends: bytes, offset: int)");
        return NULL;
    }
    Py_ssize_t offset = PyLong_AsSsize_t(given[1]), bytes = PyBytes_GET_SIZE(given[0]) & ~(Py_ssize_t)3;
    if (offset == -1 && PyErr_Occurred()) return NULL;
    PyObject *out = PyBytes_FromStringAndSize(NULL, bytes);
    for (Py_ssize_t at = 0; out && at < bytes; at += 4) {
        uint32_t end;
        memcpy(&end, PyBytes_AS_STRING(given[0]) + at, 4);
        end += (uint32_t)offset;
        memcpy(PyBytes_AS_STRING(out) + at, &end, 4);
    }
    return out;
}

/* seqs(first, count) -> "[first,…]" */
static PyObject *seqs(PyObject *module, PyObject *const *given, Py_ssize_t given_count) {
    if (given_count != 2) {
        PyErr_SetString(PyExc_TypeError, "seqs(first: int, count: int)");
        return NULL;
    }
    uint64_t first = PyLong_AsUnsignedLongLong(given[0]);
    Py_ssize_t count = PyLong_AsSsize_t(given[1]);
    if (PyErr_Occurred()) return NULL;
    if (count < 1 || count > MAX_BULK || first > INT64_MAX) {
        PyErr_SetString(PyExc_ValueError, "so many seqs are never given out at once");
        return NULL;
    }
    char number[MOST_DIGITS + 1];
    int bytes = decimal(number, first + (uint64_t)count - 1);
    PyObject *out = PyBytes_FromStringAndSize(NULL, count * (bytes + 1) + 1);
    if (!out) return NULL;
    char *w = PyBytes_AS_STRING(out);
    bytes = decimal(number, first);
    for (Py_ssize_t i = 0; i < count; i++) {
        *w++ = i ? ',' : '[';
        PUT(number, bytes);
        bytes = count_up(number, bytes);
    }
    *w++ = ']';
    if (w - PyBytes_AS_STRING(out) != PyBytes_GET_SIZE(out)) _PyBytes_Resize(&out, w - PyBytes_AS_STRING(out));
    return out;
}

/* alive(rows, ends, borders, marks, start, stop, room, budget) -> (rows, how far they go), or None: so many rows
 * from `start` on that are not marked, as `gather_alive` in render.py describes it. Ends are u32, or, where
 * there are borders, u16 as `PackedEnds` has them. */
static PyObject *alive(PyObject *module, PyObject *args) {
    Py_buffer rows, ends, borders = {0}, marks;
    Py_ssize_t start, stop, room, budget, border = 0, count = 0, live = 0, size = 0, i;
    PyObject *packed, *out = NULL;
    uint32_t *edges = NULL;
    int is_sound = 1;
    if (!PyArg_ParseTuple(args, "y*y*Oy*nnnn:alive", &rows, &ends, &packed, &marks, &start, &stop, &room, &budget))
        return NULL;
    if (packed != Py_None && PyObject_GetBuffer(packed, &borders, PyBUF_SIMPLE)) goto done;
    Py_ssize_t width = borders.obj ? 2 : 4;
    if (start < 0 || start >= stop || room < 1 || stop > marks.len || stop > ends.len / width) {
        PyErr_SetString(PyExc_ValueError, "there are no such rows");
        goto done;
    }
    if (!(edges = PyMem_Malloc(4 * (stop - start + 1)))) {
        PyErr_NoMemory();
        goto done;
    }
    const unsigned char *marked = (unsigned char *)marks.buf + start;
    edges[0] = 0;
    for (i = start ? start - 1 : 0; i < stop && live < room; i++) {
        uint32_t end, upper;
        uint16_t lower;
        if (borders.obj) {
            while (border < borders.len / 4 && (memcpy(&upper, (char *)borders.buf + 4 * border, 4), (Py_ssize_t)upper <= i))
                border++;
            memcpy(&lower, (char *)ends.buf + 2 * i, 2);
            end = ((uint32_t)border << 16) + lower;
        } else {
            memcpy(&end, (char *)ends.buf + 4 * i, 4);
        }
        is_sound &= (Py_ssize_t)end <= rows.len;
        if (i < start) {
            edges[0] = end;
            continue;
        }
        is_sound &= edges[count] <= end;
        if (!marked[count]) {
            live++;
            size += end - edges[count];
        }
        edges[++count] = end;
    }
    if (!is_sound) {
        PyErr_SetString(PyExc_ValueError, "these are not the ends of the rows");
        goto done;
    }
    if (live < room || (Py_ssize_t)edges[count] - (Py_ssize_t)edges[0] > budget) {
        out = Py_NewRef(Py_None);
        goto done;
    }
    PyObject *text = PyBytes_FromStringAndSize(NULL, size);
    if (!text) goto done;
    char *w = PyBytes_AS_STRING(text);
    for (i = 0; i < count; i++) {
        if (marked[i]) continue;
        /* Neighbours are copied together. */
        uint32_t begin = edges[i];
        while (i + 1 < count && !marked[i + 1]) i++;
        PUT((char *)rows.buf + begin, edges[i + 1] - begin);
    }
    out = Py_BuildValue("Nn", text, start + count);
done:
    PyMem_Free(edges);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&marks);
    if (borders.obj) PyBuffer_Release(&borders);
    return out;
}

/* page(before, rows, after) -> these, the rows as elements of an array: commas where newlines stood, but for the last */
static PyObject *page(PyObject *module, PyObject *const *given, Py_ssize_t given_count) {
    if (given_count != 3 || !PyBytes_CheckExact(given[0]) || !PyBytes_CheckExact(given[1]) || !PyBytes_CheckExact(given[2])) {
        PyErr_SetString(PyExc_TypeError, "page(before: bytes, rows: bytes, after: bytes)");
        return NULL;
    }
    Py_ssize_t before = PyBytes_GET_SIZE(given[0]), after = PyBytes_GET_SIZE(given[2]), at = 0;
    Py_ssize_t bytes = PyBytes_GET_SIZE(given[1]) ? PyBytes_GET_SIZE(given[1]) - 1 : 0;
    const char *rows = PyBytes_AS_STRING(given[1]);
    PyObject *out = PyBytes_FromStringAndSize(NULL, before + bytes + after);
    if (!out) return NULL;
    char *w = PyBytes_AS_STRING(out);
    PUT(PyBytes_AS_STRING(given[0]), before);
#ifdef __SSE2__
    /* A newline and a comma differ in these bits only. */
    const __m128i newline = _mm_set1_epi8('\n'), change = _mm_set1_epi8('\n' ^ ',');
    for (; bytes - at >= 16; at += 16) {
        __m128i some = _mm_loadu_si128((const __m128i *)(rows + at));
        __m128i found = _mm_and_si128(_mm_cmpeq_epi8(some, newline), change);
        _mm_storeu_si128((__m128i *)(w + at), _mm_xor_si128(some, found));
    }
#endif
    for (; at < bytes; at++) w[at] = rows[at] == '\n' ? ',' : rows[at];
    w += bytes;
    PUT(PyBytes_AS_STRING(given[2]), after);
    return out;
}

/* --- frames of the journal ----------------------------------------------------------------------------------- */

/* As `frame.py` and `frame_stretch.py` describe them. */
enum { FRAME_HEADER = 64, FRAME_APPEND = 4, SMALL_RECORDS = 16 };
static const char FRAME_MAGIC[] = "FPJ1";

static uint32_t u32_at(const char *at) {
    uint32_t found;
    memcpy(&found, at, 4);
    return found;
}

static uint64_t u64_at(const char *at) {
    uint64_t found;
    memcpy(&found, at, 8);
    return found;
}

/* Both halves of a product of 128 bits, one laid over the other. */
static uint64_t folded_product(uint64_t left, uint64_t right) {
    uint64_t low = (uint32_t)left * (uint64_t)(uint32_t)right, one = (uint32_t)left * (right >> 32);
    uint64_t middle = (low >> 32) + (uint32_t)one + (left >> 32) * (uint32_t)right;
    return ((middle >> 32) + (one >> 32) + (left >> 32) * (right >> 32)) ^ left * right;
}

/* The lower half of XXH3 of the 56 bytes behind it. */
static uint32_t header_checksum(const char *fields) {
    uint64_t sum = 56 * 0x9E3779B185EBCA87ULL;
    sum += folded_product(u64_at(fields) ^ 0xBE4BA423396CFEB8ULL, u64_at(fields + 8) ^ 0x1CAD21F72C81017CULL);
    sum += folded_product(u64_at(fields + 16) ^ 0x78E5C0CC4EE679CBULL, u64_at(fields + 24) ^ 0x2172FFCC7DD05A82ULL);
    sum += folded_product(u64_at(fields + 24) ^ 0x8E2443F7744608B8ULL, u64_at(fields + 32) ^ 0x4C263A81E69035E0ULL);
    sum += folded_product(u64_at(fields + 40) ^ 0xDB979083E96DD4DEULL, u64_at(fields + 48) ^ 0x1F67B3B7A4A44072ULL);
    sum = (sum ^ sum >> 37) * 0x165667919E3779F9ULL;
    return (uint32_t)(sum ^ sum >> 32);
}

/* The header of a frame without flags. */
static void put_header(char *start, uint64_t checksum, uint32_t bytes, uint8_t kind, uint32_t count, uint64_t topic,
                       uint64_t first, uint64_t ts, uint64_t ahead_ms, uint64_t synced) {
    uint16_t ahead_high = (uint16_t)(ahead_ms >> 32);
    uint32_t ahead_low = (uint32_t)ahead_ms;
    char *w = start + 8;
    PUT(&checksum, 8);
    PUT(&bytes, 4);
    *w++ = (char)kind;
    *w++ = 0;
    PUT(&ahead_high, 2);
    PUT(&count, 4);
    PUT(&ahead_low, 4);
    PUT(&topic, 8);
    PUT(&first, 8);
    PUT(&ts, 8);
    PUT(&synced, 8);
    uint32_t sum = header_checksum(start + 8);
    memcpy(start, FRAME_MAGIC, 4);
    memcpy(start + 4, &sum, 4);
}

/* The frame of writes that consist of one plain record each, as `plain_frame` in append_frame.py makes it: a new
 * reference; NULL without an exception if one of the bodies is anything else. */
PyObject *make_plain_frame(uint8_t kind, PyObject *keys, PyObject *bodies, uint64_t topic, uint64_t first, uint64_t ts,
                           uint64_t ahead_ms, uint64_t synced, uint64_t offset, PyObject *digest, PlainRows *rows) {
    PyObject *out = NULL, *view = NULL, *sum = NULL, *result = NULL;
    Py_ssize_t count = PyList_GET_SIZE(bodies), keys_bytes = PyBytes_GET_SIZE(keys), added = 1;
    Records found = {.room = count, .records = PyMem_RawMalloc(sizeof(Record) * (count + 1))};
    rows->ends = NULL;
    if (!found.records) return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count && added == 1; i++) {
        PyObject *body = PyList_GET_ITEM(bodies, i);
        added = PyBytes_CheckExact(body) ? add_body(&found, body) : 0;
    }
    if (added < 0) PyErr_NoMemory();
    if (added != 1 || !count || found.metas || found.tags || found.nodes) goto done;
    char middle[64];
    int middle_bytes = put_middle(middle, ts);
    uint64_t most = FRAME_HEADER + (uint64_t)keys_bytes + most_bytes(&found, first, middle_bytes);
    if (most > UINT32_MAX) goto done;
    out = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)most);
    rows->ends = PyBytes_FromStringAndSize(NULL, 4 * count);
    if (!out || !rows->ends) goto done;
    char *start = PyBytes_AS_STRING(out), *end_at = PyBytes_AS_STRING(rows->ends), *behind = start + FRAME_HEADER;
    uint32_t lengths[2], end;
    memcpy(behind, PyBytes_AS_STRING(keys), keys_bytes);
    char *w = put_payload(&found, behind + keys_bytes, end_at, first, middle, middle_bytes, lengths);
    for (Py_ssize_t i = 0; i < count; i++) {
        memcpy(&end, end_at + 4 * i, 4);
        end += (uint32_t)offset;
        memcpy(end_at + 4 * i, &end, 4);
    }
    view = PyMemoryView_FromMemory(behind, w - behind, PyBUF_READ);
    if (!view || !(sum = PyObject_CallOneArg(digest, view))) goto done;
    uint64_t checksum = PyLong_AsUnsignedLongLong(sum);
    if (PyErr_Occurred()) goto done;
    put_header(start, checksum, (uint32_t)(w - behind), kind, (uint32_t)count, topic, first, ts, ahead_ms, synced);
    Py_ssize_t bytes = w - start;
    if ((uint64_t)bytes != most && _PyBytes_Resize(&out, bytes)) goto done;
    rows->at = FRAME_HEADER + keys_bytes + 8;
    rows->bytes = (Py_ssize_t)lengths[0];
    rows->data_bytes = found.data_bytes;
    result = Py_NewRef(out);
done:
    PyMem_RawFree(found.records);
    Py_XDECREF(view);
    Py_XDECREF(sum);
    Py_XDECREF(out);
    if (!result) Py_CLEAR(rows->ends);
    return result;
}

/* plain_frame(kind, keys, bodies, topic_id, first_seq, ts, ahead_ms, synced, offset, digest) -> (frame, where its rows
 * begin in it and end, where each row ends behind `offset` bytes of others, bytes of data), or None */
static PyObject *plain_frame(PyObject *module, PyObject *const *given, Py_ssize_t given_count) {
    enum { KIND, KEYS, BODIES, TOPIC, FIRST, TS, AHEAD, SYNCED, OFFSET, DIGEST, ALL };
    uint64_t numbers[ALL] = {0};
    if (given_count != ALL || !PyBytes_CheckExact(given[KEYS]) || !PyList_CheckExact(given[BODIES])) {
        PyErr_SetString(PyExc_TypeError, "plain_frame(kind, keys: bytes, bodies: list[bytes], topic_id, first_seq, ts, "
                                         "ahead_ms, synced, offset, digest)");
        return NULL;
    }
    for (int i = 0; i < DIGEST; i++)
        if (i != KEYS && i != BODIES) numbers[i] = PyLong_AsUnsignedLongLong(given[i]);
    if (PyErr_Occurred()) return NULL;
    if (numbers[FIRST] > INT64_MAX || numbers[TS] > INT64_MAX) {
        PyErr_SetString(PyExc_OverflowError, "seqs and times have 63 bits");
        return NULL;
    }
    PlainRows rows;
    PyObject *frame = make_plain_frame((uint8_t)numbers[KIND], given[KEYS], given[BODIES], numbers[TOPIC], numbers[FIRST],
                                       numbers[TS], numbers[AHEAD], numbers[SYNCED], numbers[OFFSET], given[DIGEST], &rows);
    if (!frame) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    return Py_BuildValue("NnnNK", frame, rows.at, rows.at + rows.bytes, rows.ends, (unsigned long long)rows.data_bytes);
}

/* frames(window, topic, first_seq, position) -> where small plain frames with sound headers begin, one behind the
 * other from the window's first byte on, and where the last one ends, as int64. Payloads are not looked at. */
static PyObject *frames(PyObject *module, PyObject *args) {
    const char *window;
    Py_ssize_t bytes, at = 0, found = 0;
    unsigned long long topic, seq, position;
    if (!PyArg_ParseTuple(args, "y#KKK:frames", &window, &bytes, &topic, &seq, &position)) return NULL;
    PyObject *out = PyBytes_FromStringAndSize(NULL, 8 * (bytes / FRAME_HEADER + 1));
    if (!out) return NULL;
    char *w = PyBytes_AS_STRING(out);
    for (;;) {
        int64_t start = at;
        const char *header = window + at;
        memcpy(w + 8 * found, &start, 8);
        if (bytes - at < FRAME_HEADER || memcmp(header, FRAME_MAGIC, 4)) break;
        uint32_t length = u32_at(header + 16), count = u32_at(header + 24);
        if (header[20] != FRAME_APPEND || header[21] || count > SMALL_RECORDS || u64_at(header + 32) != topic ||
            u64_at(header + 40) != seq || u64_at(header + 56) > position + (uint64_t)at)
            break;
        if (length < 8 + 4 * count || (Py_ssize_t)length > bytes - at - FRAME_HEADER) break;
        if (header_checksum(header + 8) != u32_at(header + 4)) break;
        at += FRAME_HEADER + (Py_ssize_t)length;
        seq += count;
        found++;
    }
    _PyBytes_Resize(&out, 8 * (found + 1));
    return out;
}

/* frame_parts(window, starts) -> (rows, lengths): what the frames that begin there hold, of all of them together */
static PyObject *frame_parts(PyObject *module, PyObject *args) {
    const char *window;
    Py_ssize_t bytes, rows = 0, lengths = 0;
    Py_buffer starts;
    PyObject *text = NULL, *numbers = NULL;
    if (!PyArg_ParseTuple(args, "y#y*:frame_parts", &window, &bytes, &starts)) return NULL;
    Py_ssize_t count = starts.len / 8 - 1;
    const int64_t *edges = starts.buf;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (edges[i] < 0 || edges[i + 1] > bytes || edges[i + 1] - edges[i] < FRAME_HEADER + 8 ||
            edges[i + 1] - edges[i] - FRAME_HEADER - 8 < 4 * (int64_t)u32_at(window + edges[i] + 24)) {
            PyErr_SetString(PyExc_ValueError, "there are no such frames");
            goto done;
        }
        Py_ssize_t own = 4 * (Py_ssize_t)u32_at(window + edges[i] + 24);
        lengths += own;
        rows += (Py_ssize_t)(edges[i + 1] - edges[i]) - FRAME_HEADER - 8 - own;
    }
    text = PyBytes_FromStringAndSize(NULL, rows);
    numbers = PyBytes_FromStringAndSize(NULL, lengths);
    if (!text || !numbers) goto done;
    char *w = PyBytes_AS_STRING(text), *numbers_at = PyBytes_AS_STRING(numbers);
    for (Py_ssize_t i = 0; i < count; i++) {
        Py_ssize_t own = 4 * (Py_ssize_t)u32_at(window + edges[i] + 24);
        const char *begin = window + edges[i] + FRAME_HEADER + 8, *end = window + edges[i + 1] - own;
        PUT(begin, end - begin);
        memcpy(numbers_at, end, own);
        numbers_at += own;
    }
done:
    PyBuffer_Release(&starts);
    if (text && numbers && !PyErr_Occurred()) return Py_BuildValue("NN", text, numbers);
    Py_XDECREF(text);
    Py_XDECREF(numbers);
    return NULL;
}

/* --- heads of requests -------------------------------------------------------------------------------------- */

static int is_key_line(Text p, Text end) {
    return end - p >= 19 && (!memcmp(p, "\r\nIdempotency-Key: ", 19) || !memcmp(p, "\r\nidempotency-key: ", 19));
}

int key_line_at(const unsigned char *start, const unsigned char *end, KeyLine *found) {
    if (!is_key_line(start, end)) return 0;
    Text key = start + 19, stop;
    for (stop = key; stop < end && *stop != '\r'; stop++)
        if (*stop < 0x20 || *stop > 0x7e) return 0;
    if (stop == key || *key == ' ' || stop[-1] == ' ' || (stop < end && (end - stop < 2 || stop[1] != '\n'))) return 0;
    *found = (KeyLine){start, key, stop};
    return 1;
}

/* Where the first line of an idempotency key begins, the key itself, and where both end; 0 if there is none to be seen,
 * or one that `known_requests.py` leaves to the parser. */
int key_in_head(const unsigned char *start, const unsigned char *end, KeyLine *found) {
    Text p = start;
    while ((p = memchr(p, '\r', end - p)) && !is_key_line(p, end)) p++;
    return p && key_line_at(p, end, found);
}

/* The head without that line. */
PyObject *head_without(const unsigned char *start, const unsigned char *end, const KeyLine *line) {
    PyObject *rest = PyBytes_FromStringAndSize(NULL, (line->start - start) + (end - line->stop));
    if (!rest) return NULL;
    memcpy(PyBytes_AS_STRING(rest), start, line->start - start);
    memcpy(PyBytes_AS_STRING(rest) + (line->start - start), line->stop, end - line->stop);
    return rest;
}

/* key_of_head(head) -> (head without the line of its idempotency key, that key), or None, as `known_requests.py`
 * describes it. */
static PyObject *key_of_head(PyObject *module, PyObject *head) {
    if (!PyBytes_CheckExact(head)) {
        PyErr_SetString(PyExc_TypeError, "key_of_head(head: bytes)");
        return NULL;
    }
    Text start = (Text)PyBytes_AS_STRING(head), end = start + PyBytes_GET_SIZE(head);
    KeyLine line;
    if (!key_in_head(start, end, &line)) Py_RETURN_NONE;
    PyObject *rest = head_without(start, end, &line);
    return rest ? Py_BuildValue("Ny#", rest, (const char *)line.key, (Py_ssize_t)(line.stop - line.key)) : NULL;
}

/* --- the module -------------------------------------------------------------------------------------------- */

static PyObject *get_count(PyObject *self, void *unused) { return PyLong_FromSsize_t(((Records *)self)->count); }
static PyObject *get_size(PyObject *self, void *unused) {
    return PyLong_FromUnsignedLongLong(((Records *)self)->data_bytes + ((Records *)self)->meta_bytes);
}
static PyObject *get_has_tags(PyObject *self, void *unused) { return PyBool_FromLong(((Records *)self)->tags > 0); }
static PyObject *get_has_nodes(PyObject *self, void *unused) { return PyBool_FromLong(((Records *)self)->nodes > 0); }
static PyObject *get_has_metas(PyObject *self, void *unused) { return PyBool_FromLong(((Records *)self)->metas > 0); }

static PyGetSetDef records_fields[] = {
    {"count", get_count, NULL, NULL, NULL},         {"size", get_size, NULL, NULL, NULL},
    {"has_tags", get_has_tags, NULL, NULL, NULL},   {"has_nodes", get_has_nodes, NULL, NULL, NULL},
    {"has_metas", get_has_metas, NULL, NULL, NULL}, {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef records_methods[] = {
    {"payload", (PyCFunction)(void (*)(void))payload, METH_FASTCALL, NULL},
    {"data_lens", data_lens, METH_NOARGS, NULL},
    {"meta_lens", meta_lens, METH_NOARGS, NULL},
    {"tags", tags, METH_NOARGS, NULL},
    {"nodes", nodes, METH_NOARGS, NULL},
    {"give_node", give_node, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject RecordsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "topics.values._accelerator.Records",
    .tp_basicsize = sizeof(Records),
    .tp_dealloc = records_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_methods = records_methods,
    .tp_getset = records_fields,
};

/* Whether a value is JSON throughout, beyond doubt: of the plain types themselves, its numbers finite, its keys text. */
static int is_plain(PyObject *value, int depth) {
    PyTypeObject *kind = Py_TYPE(value);
    if (kind == &PyUnicode_Type || kind == &PyLong_Type || kind == &PyBool_Type || value == Py_None) return 1;
    if (kind == &PyFloat_Type) return isfinite(PyFloat_AS_DOUBLE(value));
    if (depth == 0) return 0;
    if (kind == &PyDict_Type) {
        PyObject *key, *inner;
        for (Py_ssize_t at = 0; PyDict_Next(value, &at, &key, &inner);)
            if (Py_TYPE(key) != &PyUnicode_Type || !is_plain(inner, depth - 1)) return 0;
        return 1;
    }
    if (kind == &PyList_Type || kind == &PyTuple_Type) {
        PyObject **inner = PySequence_Fast_ITEMS(value);
        for (Py_ssize_t at = 0; at < Py_SIZE(value); at++)
            if (!is_plain(inner[at], depth - 1)) return 0;
        return 1;
    }
    return 0;
}

static PyObject *is_json(PyObject *module, PyObject *value) { return PyBool_FromLong(is_plain(value, MAX_DEPTH)); }

static PyMethodDef functions[] = {
    {"is_json", is_json, METH_O, NULL},
    {"cut", (PyCFunction)(void (*)(void))cut, METH_FASTCALL, NULL},
    {"gather", gather, METH_O, NULL},
    {"cells", cells, METH_VARARGS, NULL},
    {"alive", alive, METH_VARARGS, NULL},
    {"encode", (PyCFunction)(void (*)(void))encode, METH_FASTCALL, NULL},
    {"post", (PyCFunction)(void (*)(void))post, METH_FASTCALL, NULL},
    {"page", (PyCFunction)(void (*)(void))page, METH_FASTCALL, NULL},
    {"plain_frame", (PyCFunction)(void (*)(void))plain_frame, METH_FASTCALL, NULL},
    {"frames", frames, METH_VARARGS, NULL},
    {"frame_parts", frame_parts, METH_VARARGS, NULL},
    {"key_of_head", key_of_head, METH_O, NULL},
    {"key_digest", (PyCFunction)(void (*)(void))key_digest, METH_FASTCALL, NULL},
    {"answers", (PyCFunction)(void (*)(void))answers, METH_FASTCALL, NULL},
    {"ends_behind", (PyCFunction)(void (*)(void))ends_behind, METH_FASTCALL, NULL},
    {"seqs", (PyCFunction)(void (*)(void))seqs, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_accelerator", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__accelerator(void) {
    PyObject *module;
    if (PyType_Ready(&RecordsType) < 0 || PyType_Ready(&SocketsType) < 0 ||
        PyType_Ready(&TogetherType) < 0 || PyType_Ready(&PlacesType) < 0 || !(module = PyModule_Create(&definition)))
        return NULL;
    if (PyModule_AddObjectRef(module, "Records", (PyObject *)&RecordsType) ||
        PyModule_AddObjectRef(module, "Sockets", (PyObject *)&SocketsType) ||
        PyModule_AddObjectRef(module, "Together", (PyObject *)&TogetherType) ||
        PyModule_AddObjectRef(module, "Places", (PyObject *)&PlacesType) ||
        PyModule_AddObject(module, "LIMITS",
                           Py_BuildValue("(iiiii)", MAX_RECORDS, MAX_RECORD, MAX_TAG, MAX_NODE, MAX_META)) ||
        PyModule_AddStringConstant(module, "SOURCE", SOURCE)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
