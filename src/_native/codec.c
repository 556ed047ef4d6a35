/* The codec of the write path: request bodies are decoded to records, records are rendered as rows and as the
 * payload of a frame. `topics/codec/python.py` does the same in Python, with the same result byte for byte.
 *
 * All functions are pure. Bytes, integers, strings and lists go in and come out; a `Write` keeps only the buffers
 * that its records point into. A request with a mistake is None: `topics/codec/mistakes.py` finds the words.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The limits of the API. `topics/codec/native.py` compares them with its own before it uses the module. */
enum {
    MAX_RECORDS = 10000,
    MAX_RECORD = 1 << 20,
    MAX_META = 16384,
    MAX_META_KEYS = 64,
    MAX_DEPTH = 900,
    /* The text of a record beside its data and meta, and of a body beside its records. */
    MAX_AROUND_RECORD = 16384,
    MAX_AROUND_RECORDS = 1 << 20
};
enum {
    /* An object of at most this many bytes cannot have more than MAX_META_KEYS keys. */
    FEW_KEYS_BYTES = MAX_META_KEYS * 5,
    /* Work on more than this releases the GIL; for less, that costs more than it gives. */
    LARGE_BYTES = 1 << 20,
    /* Rows up to this size are copied when they are asked for; a view costs more. */
    COPIED_BYTES = 4096,
    MOST_DIGITS = 20
};

typedef const unsigned char *Text;

#define PUT(text, length) (memcpy(w, text, length), w += (length))
#define PUT_ALL(text) PUT(text, sizeof(text) - 1)

static uint32_t u32_at(const void *at) {
    uint32_t found;
    memcpy(&found, at, 4);
    return found;
}

static uint64_t u64_at(const void *at) {
    uint64_t found;
    memcpy(&found, at, 8);
    return found;
}

/* --- JSON: each function returns the place after the text it has read, or NULL ------------------------------- */

static int hex(unsigned char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* The code unit of \uXXXX, or -1. */
static int code_unit(Text p, Text end) {
    int unit = 0;
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return -1;
    for (int i = 2; i < 6; i++) {
        int digit = hex(p[i]);
        if (digit < 0) return -1;
        unit = unit << 4 | digit;
    }
    return unit;
}

static int is_high_surrogate(int unit) { return unit >> 10 == 0x36; }
static int is_low_surrogate(int unit) { return unit >> 10 == 0x37; }

static Text escape(Text p, Text end) {
    if (end - p < 2) return NULL;
    if (p[1] != 'u') return memchr("\"\\/bfnrt", p[1], 8) ? p + 2 : NULL;
    int unit = code_unit(p, end);
    if (unit < 0 || is_low_surrogate(unit)) return NULL;
    if (!is_high_surrogate(unit)) return p + 6;
    return is_low_surrogate(code_unit(p + 6, end)) ? p + 12 : NULL;
}

/* The next quote, backslash or control character, as far as sixteen bytes can be compared at once. */
static inline Text plain(Text p, Text end) {
#ifdef __SSE2__
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\'), control = _mm_set1_epi8(0x1f);
    while (end - p >= 16) {
        __m128i some = _mm_loadu_si128((const __m128i *)p);
        __m128i found = _mm_or_si128(_mm_cmpeq_epi8(some, quote), _mm_cmpeq_epi8(some, slash));
        int at = _mm_movemask_epi8(_mm_or_si128(found, _mm_cmpeq_epi8(_mm_min_epu8(some, control), some)));
        if (at) return p + __builtin_ctz((unsigned)at);
        p += 16;
    }
#endif
    while (p < end && *p != '"' && *p != '\\' && *p >= 0x20) p++;
    return p;
}

/* `p` is after the opening quote. */
static Text string(Text p, Text end) {
    for (;;) {
        p = plain(p, end);
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

static int is_blank(unsigned char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static inline Text skip(Text p, Text end, size_t *blanks) {
    if (p >= end || *p > ' ') return p;
    Text start = p;
    while (p < end && is_blank(*p)) p++;
    *blanks += (size_t)(p - start);
    return p;
}

/* The colon after a name, and the blanks around it. */
static inline Text colon(Text p, Text end, size_t *blanks) {
    p = skip(p, end, blanks);
    return p < end && *p == ':' ? skip(p + 1, end, blanks) : NULL;
}

/* One value. `depth` is the number of arrays and objects around it; `blanks` counts insignificant white space. */
static Text value(Text p, Text end, int depth, size_t *blanks) {
    if (p >= end) return NULL;
    unsigned char opens = *p, closes = opens == '[' ? ']' : '}';
    switch (opens) {
    case '"':
        return string(p + 1, end);
    case 't':
        return word(p, end, "true", 4);
    case 'f':
        return word(p, end, "false", 5);
    case 'n':
        return word(p, end, "null", 4);
    case '[':
    case '{':
        break;
    default:
        return number(p, end);
    }
    if (depth == MAX_DEPTH) return NULL;
    p = skip(p + 1, end, blanks);
    if (p < end && *p == closes) return p + 1;
    for (;;) {
        if (opens == '{') {
            if (p >= end || *p != '"' || !(p = string(p + 1, end)) || !(p = colon(p, end, blanks))) return NULL;
        }
        if (!(p = value(p, end, depth + 1, blanks))) return NULL;
        p = skip(p, end, blanks);
        if (p >= end) return NULL;
        if (*p == closes) return p + 1;
        if (*p != ',') return NULL;
        p = skip(p + 1, end, blanks);
    }
}

/* Copies a value that was read, without its blanks. */
static char *put_value(char *w, Text p, uint32_t raw, uint32_t bytes) {
    Text end = p + raw;
    if (raw == bytes) return PUT(p, raw);
    while (p < end) {
        if (*p == '"') {
            Text stop = string(p + 1, end);
            PUT(p, stop - p);
            p = stop;
        } else if (is_blank(*p)) {
            p++;
        } else {
            *w++ = (char)*p++;
        }
    }
    return w;
}

/* --- text ----------------------------------------------------------------------------------------------------- */

static int continues(Text p, int count) {
    for (int i = 1; i <= count; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    return 1;
}

/* Whether this is UTF-8 as Python has it: in the shortest form, without surrogates, up to U+10FFFF. */
static int is_utf8(Text p, Text end) {
    while (p < end) {
#ifdef __SSE2__
        if (end - p >= 16 && !_mm_movemask_epi8(_mm_loadu_si128((const __m128i *)p))) {
            p += 16;
            continue;
        }
#endif
        unsigned char c = *p;
        if (c < 0x80) {
            p++;
        } else if (c < 0xe0) {
            if (c < 0xc2 || end - p < 2 || !continues(p, 1)) return 0;
            p += 2;
        } else if (c < 0xf0) {
            if (end - p < 3 || !continues(p, 2)) return 0;
            if ((c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f)) return 0;
            p += 3;
        } else {
            if (c > 0xf4 || end - p < 4 || !continues(p, 3)) return 0;
            if ((c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] > 0x8f)) return 0;
            p += 4;
        }
    }
    return 1;
}

static char *put_code_point(char *w, uint32_t c) {
    static const unsigned char firsts[] = {0, 0xc0, 0xe0, 0xf0};
    int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *w++ = (char)(firsts[more] | c >> 6 * more);
    while (more--) *w++ = (char)(0x80 | (c >> 6 * more & 0x3f));
    return w;
}

/* Copies a string that was read, without its escapes. The result is never longer. */
static char *put_unescaped(char *w, Text p, Text end) {
    while (p < end) {
        if (*p != '\\') {
            *w++ = (char)*p++;
            continue;
        }
        static const char escapes[] = "bfnrt", meanings[] = "\b\f\n\r\t";
        const char *found = memchr(escapes, p[1], 5);
        if (p[1] != 'u') {
            *w++ = found ? meanings[found - escapes] : (char)p[1];
            p += 2;
            continue;
        }
        uint32_t unit = (uint32_t)code_unit(p, end);
        p += 6;
        if (is_high_surrogate((int)unit)) {
            unit = 0x10000 + ((unit & 0x3ff) << 10 | ((uint32_t)code_unit(p, end) & 0x3ff));
            p += 6;
        }
        w = put_code_point(w, unit);
    }
    return w;
}

/* How many bytes the text takes inside of a JSON string. */
static uint64_t json_bytes(Text text, uint32_t bytes) {
    uint64_t total = bytes;
    for (uint32_t i = 0; i < bytes; i++) {
        if (text[i] == '"' || text[i] == '\\') total += 1;
        else if (text[i] < 0x20) total += memchr("\b\f\n\r\t", text[i], 5) ? 1 : 5;
    }
    return total;
}

static char *put_json_text(char *w, Text text, uint32_t bytes, uint32_t as_json) {
    if (as_json == bytes) return PUT(text, bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        static const char controls[] = "\b\f\n\r\t", letters[] = "bfnrt", hexes[] = "0123456789abcdef";
        const char *found = memchr(controls, text[i], 5);
        if (found) {
            *w++ = '\\';
            *w++ = letters[found - controls];
        } else if (text[i] < 0x20) {
            PUT_ALL("\\u00");
            *w++ = hexes[text[i] >> 4];
            *w++ = hexes[text[i] & 15];
        } else {
            if (text[i] == '"' || text[i] == '\\') *w++ = '\\';
            *w++ = (char)text[i];
        }
    }
    return w;
}

/* --- numbers as text ------------------------------------------------------------------------------------------ */

static int decimal(char *to, uint64_t n) {
    char reversed[MOST_DIGITS];
    int length = 0;
    do reversed[length++] = (char)('0' + n % 10);
    while (n /= 10);
    for (int i = 0; i < length; i++) to[i] = reversed[length - 1 - i];
    return length;
}

/* Writes the next number; returns its number of digits. */
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

/* How many digits these consecutive numbers have together. */
static uint64_t digits_of(uint64_t first, uint64_t count) {
    char text[MOST_DIGITS + 1];
    uint64_t total = 0, border = 10;
    int length = decimal(text, first);
    for (int i = 1; i < length; i++) border *= 10;
    while (count > border - first) {
        total += (uint64_t)length++ * (border - first);
        count -= border - first;
        first = border;
        border *= 10;
    }
    return total + (uint64_t)length * count;
}

/* --- named fields ---------------------------------------------------------------------------------------------- */

typedef struct {
    const char *text;
    uint32_t bytes;
} Name;

#define NAME(text) {text, sizeof(text) - 1}

/* `FIELDS` of `topics/core/record_fields.py`; `key` is what comes before a name in a row. */
static const struct {
    Name name, key;
    uint32_t max_bytes;
    int flag, is_in_row;
} FIELDS[] = {{NAME("tag"), NAME(",\"$tag\":\""), 256, 2, 0}, {NAME("node"), NAME(",\"$node\":\""), 128, 4, 1}};

enum { FIELD_COUNT = sizeof FIELDS / sizeof FIELDS[0], NODE_AT = 1 };

/* UTF-8 without escapes; NULL if absent. `json_bytes`: its length inside of a JSON string, for a field in rows. */
typedef struct {
    Text text;
    uint32_t bytes, json_bytes;
} Value;

/* --- writes --------------------------------------------------------------------------------------------------- */

typedef struct {
    /* As they were sent; NULL if absent. */
    Text data, meta;
    /* With and without insignificant white space. */
    uint32_t data_raw, data_bytes, meta_raw, meta_bytes;
    Value names[FIELD_COUNT];
} Record;

/* Sums over records: bytes of text, and how many records have a meta or a name. `packed`: as MessagePack. All fields
 * have one type, so that they can be added up in a loop. */
typedef struct {
    uint64_t count, data_bytes, meta_bytes, metas, all_names;
    uint64_t names[FIELD_COUNT], packed[FIELD_COUNT], json_bytes[FIELD_COUNT];
} Totals;

typedef struct {
    PyObject_HEAD
    /* The objects that the records point into: a body, or a tuple of columns; and the buffer of a column. */
    PyObject *owner;
    Py_buffer buffer;
    /* Most requests have one record: no array is allocated for it. */
    Record one, *records;
    size_t room;
    Totals totals;
    /* Strings without their escapes. They never take more room than the body. */
    char *unescaped, *unescaped_end;
    int no_memory;
    Text key, config;
    uint32_t key_bytes, config_raw, config_bytes;
    signed char create, patient, return_seqs;
} Write;

static PyTypeObject WriteType;

static Write *new_write(PyObject *owner) {
    Write *self = PyObject_New(Write, &WriteType);
    if (!self) return NULL;
    memset((char *)self + offsetof(Write, owner), 0, sizeof(Write) - offsetof(Write, owner));
    self->owner = Py_NewRef(owner);
    self->records = &self->one;
    self->room = 1;
    self->create = -1;
    self->return_seqs = 1;
    return self;
}

static void write_dealloc(PyObject *object) {
    Write *self = (Write *)object;
    if (self->buffer.obj) PyBuffer_Release(&self->buffer);
    if (self->records != &self->one) PyMem_RawFree(self->records);
    PyMem_RawFree(self->unescaped);
    Py_DECREF(self->owner);
    PyObject_Free(self);
}

/* 0 if there is no memory. The raw allocator needs no GIL. */
static int make_room(Write *self, size_t room) {
    if (room <= self->room) return 1;
    Record *larger = PyMem_RawRealloc(self->records == &self->one ? NULL : self->records, sizeof(Record) * room);
    if (!larger) {
        self->no_memory = 1;
        return 0;
    }
    if (self->records == &self->one) larger[0] = self->one;
    self->records = larger;
    self->room = room;
    return 1;
}

static uint64_t packed_bytes(uint64_t bytes) { return bytes + (bytes < 32 ? 1 : bytes < 256 ? 2 : bytes < 65536 ? 3 : 5); }

static void count_name(Totals *totals, Value *found, int field) {
    if (FIELDS[field].is_in_row) found->json_bytes = (uint32_t)json_bytes(found->text, found->bytes);
    totals->all_names += 1;
    totals->names[field] += 1;
    totals->json_bytes[field] += found->json_bytes;
    totals->packed[field] += packed_bytes(found->bytes);
}

static int add(Write *self, Record *record) {
    Totals *totals = &self->totals;
    if (totals->count == self->room && !make_room(self, self->room < 16 ? 32 : self->room * 2)) return 0;
    for (int i = 0; i < FIELD_COUNT; i++)
        if (record->names[i].text) count_name(totals, &record->names[i], i);
    self->records[totals->count++] = *record;
    totals->data_bytes += record->data_bytes;
    totals->meta_bytes += record->meta_bytes;
    totals->metas += record->meta != NULL;
    return 1;
}

/* --- decode: each function returns the place after the text it has read; NULL for a mistake -------------------- */

/* What is left to read of a body, and the blanks in what was read. */
typedef struct {
    Write *write;
    Text start, end;
    size_t size, blanks;
    int publish;
} Body;

/* A string without its escapes. `p` is at the opening quote. */
static Text text_value(Body *in, Text p, Text *text, uint32_t *bytes) {
    Write *write = in->write;
    Text start = p + 1, stop;
    if (p >= in->end || *p != '"' || !(stop = string(start, in->end))) return NULL;
    *text = start;
    *bytes = (uint32_t)(stop - 1 - start);
    if (!memchr(start, '\\', *bytes)) return stop;
    if (!write->unescaped) {
        write->unescaped = write->unescaped_end = PyMem_RawMalloc(in->size);
        if (!write->unescaped) {
            write->no_memory = 1;
            return NULL;
        }
    }
    *text = (Text)write->unescaped_end;
    write->unescaped_end = put_unescaped(write->unescaped_end, start, stop - 1);
    *bytes = (uint32_t)((Text)write->unescaped_end - *text);
    return stop;
}

/* A string, or null. */
static Text optional_text(Body *in, Text p, Text *text, uint32_t *bytes) {
    *text = NULL;
    *bytes = 0;
    return p < in->end && *p == 'n' ? word(p, in->end, "null", 4) : text_value(in, p, text, bytes);
}

/* True, false, or null if `or_null`: 1, 0 or -1. */
static Text truth(Body *in, Text p, signed char *found, int or_null) {
    Text stop;
    if ((stop = word(p, in->end, "true", 4))) *found = 1;
    else if ((stop = word(p, in->end, "false", 5))) *found = 0;
    else if (or_null && (stop = word(p, in->end, "null", 4))) *found = -1;
    return stop;
}

/* A value of any kind, its length with and without blanks. */
static Text any_value(Body *in, Text p, Text *text, uint32_t *raw, uint32_t *bytes) {
    size_t before = in->blanks;
    *text = p;
    if (!(p = value(p, in->end, 0, &in->blanks))) return NULL;
    *raw = (uint32_t)(p - *text);
    *bytes = *raw - (uint32_t)(in->blanks - before);
    return p;
}

static int is_name(const Name *name, Text text, uint32_t bytes) {
    return name->bytes == bytes && !memcmp(name->text, text, bytes);
}

/* The name of a member; returns the place of its value. */
static Text member_name(Body *in, Text p, Text *name, uint32_t *bytes) {
    p = text_value(in, p, name, bytes);
    return p ? colon(p, in->end, &in->blanks) : NULL;
}

/* The comma or brace after a member; `*more` tells which. */
static inline Text next_member(Body *in, Text p, int *more) {
    p = skip(p, in->end, &in->blanks);
    if (p >= in->end || (*p != ',' && *p != '}')) return NULL;
    *more = *p == ',';
    return *more ? skip(p + 1, in->end, &in->blanks) : p + 1;
}

/* Whether an object that was read has at most MAX_META_KEYS different keys. */
static int has_few_keys(Body *in, Text p, Text end) {
    Text keys[MAX_META_KEYS];
    uint32_t lengths[MAX_META_KEYS], bytes;
    uint64_t hashes[MAX_META_KEYS];
    size_t unused = 0;
    int count = 0, i, more = 1;
    Body inner = {.write = in->write, .end = end, .size = in->size};
    for (p = skip(p + 1, end, &unused); more && *p == '"';) {
        Text key;
        if (!(p = member_name(&inner, p, &key, &bytes))) return 0;
        uint64_t hash = 14695981039346656037ULL;
        for (uint32_t at = 0; at < bytes; at++) hash = (hash ^ key[at]) * 1099511628211ULL;
        for (i = 0; i < count; i++)
            if (hashes[i] == hash && lengths[i] == bytes && !memcmp(keys[i], key, bytes)) break;
        if (i == MAX_META_KEYS) return 0;
        if (i == count) {
            keys[count] = key;
            lengths[count] = bytes;
            hashes[count++] = hash;
        }
        p = value(p, end, 0, &unused);
        p = next_member(&inner, p, &more);
    }
    return 1;
}

/* Duplicate names are taken: the last one counts. */
static Text record(Body *in, Text p, Record *found) {
    static const Name data = NAME("data"), meta = NAME("meta");
    Text start = p, name;
    size_t before = in->blanks;
    uint32_t bytes;
    int more = 1, i;
    memset(found, 0, sizeof *found);
    if (p >= in->end || *p != '{') return NULL;
    p = skip(p + 1, in->end, &in->blanks);
    while (more) {
        if (!(p = member_name(in, p, &name, &bytes))) return NULL;
        if (is_name(&data, name, bytes)) {
            p = any_value(in, p, &found->data, &found->data_raw, &found->data_bytes);
        } else if (is_name(&meta, name, bytes)) {
            p = any_value(in, p, &found->meta, &found->meta_raw, &found->meta_bytes);
        } else {
            for (i = 0; i < FIELD_COUNT && !is_name(&FIELDS[i].name, name, bytes); i++);
            if (i == FIELD_COUNT) return NULL;
            p = optional_text(in, p, &found->names[i].text, &found->names[i].bytes);
        }
        if (!p || !(p = next_member(in, p, &more))) return NULL;
    }
    for (i = 0; i < FIELD_COUNT; i++)
        if (found->names[i].bytes > FIELDS[i].max_bytes) return NULL;
    if (found->meta && *found->meta == 'n') {
        found->meta = NULL;
        found->meta_raw = found->meta_bytes = 0;
    }
    if (!found->data || found->data_bytes > MAX_RECORD) return NULL;
    if (found->meta) {
        if (*found->meta != '{' || found->meta_bytes > MAX_META || found->data_bytes + found->meta_bytes > MAX_RECORD)
            return NULL;
        if (found->meta_bytes > FEW_KEYS_BYTES && !has_few_keys(in, found->meta, found->meta + found->meta_raw)) return NULL;
    }
    return (size_t)(p - start) - (in->blanks - before) > MAX_RECORD + MAX_AROUND_RECORD ? NULL : p;
}

/* The array of records. `*bytes` is its length without blanks and brackets. */
static Text records(Body *in, Text p, size_t *bytes) {
    Record found;
    if (p >= in->end || *p != '[') return NULL;
    Text start = ++p;
    size_t before = in->blanks;
    p = skip(p, in->end, &in->blanks);
    for (;;) {
        if (in->write->totals.count == MAX_RECORDS || !(p = record(in, p, &found)) || !add(in->write, &found)) return NULL;
        p = skip(p, in->end, &in->blanks);
        if (p >= in->end || (*p != ',' && *p != ']')) return NULL;
        if (*p++ == ']') break;
        p = skip(p, in->end, &in->blanks);
    }
    *bytes = (size_t)(p - 1 - start) - (in->blanks - before);
    return p;
}

/* Every record without a node gets this one. */
static void give_node(Write *self, Text node, uint32_t bytes) {
    for (size_t i = 0; i < self->totals.count; i++) {
        Value *own = &self->records[i].names[NODE_AT];
        if (own->text) continue;
        own->text = node;
        own->bytes = bytes;
        count_name(&self->totals, own, NODE_AT);
    }
}

/* 0 for a mistake, or if there is no memory. */
static int body(Body *in) {
    enum { RECORDS, KEY, NODE, CREATE, CONFIG, PATIENT, RETURN_SEQS, TOPIC, OP, REQUEST_ID, ALL, HTTP = TOPIC };
    static const Name names[ALL] = {NAME("records"), NAME("idempotency_key"), NAME("node"), NAME("create"),
                                    NAME("config"), NAME("disable_backpressure"), NAME("return_seqs"), NAME("topic"),
                                    NAME("op"), NAME("request_id")};
    Write *write = in->write;
    Text p = in->start, node = NULL, member, unused_text;
    uint32_t node_bytes = 0, unused_raw, unused_bytes;
    size_t records_bytes = 0;
    unsigned seen = 0;
    int more = 1;
    if (in->end - p > UINT32_MAX || !is_utf8(p, in->end)) return 0;
    p = skip(p, in->end, &in->blanks);
    if (p >= in->end || *p != '{') return 0;
    p = skip(p + 1, in->end, &in->blanks);
    while (more) {
        int name = 0, count = in->publish ? ALL : HTTP;
        if (!(p = member_name(in, p, &member, &unused_bytes))) return 0;
        while (name < count && !is_name(&names[name], member, unused_bytes)) name++;
        if (name == count || seen & 1u << name) return 0;
        seen |= 1u << name;
        switch (name) {
        case RECORDS:
            p = records(in, p, &records_bytes);
            break;
        case KEY:
            p = optional_text(in, p, &write->key, &write->key_bytes);
            break;
        case NODE:
            p = optional_text(in, p, &node, &node_bytes);
            break;
        case CREATE:
            p = truth(in, p, &write->create, 1);
            break;
        case CONFIG:
            p = any_value(in, p, &write->config, &write->config_raw, &write->config_bytes);
            if (p && *write->config == 'n') write->config = NULL;
            else if (p && *write->config != '{') p = NULL;
            break;
        case PATIENT:
            p = truth(in, p, &write->patient, 0);
            break;
        case RETURN_SEQS:
            p = truth(in, p, &write->return_seqs, 0);
            break;
        case TOPIC:
            p = optional_text(in, p, &unused_text, &unused_bytes);
            break;
        default:
            p = any_value(in, p, &unused_text, &unused_raw, &unused_bytes);
        }
        if (!p || !(p = next_member(in, p, &more))) return 0;
    }
    p = skip(p, in->end, &in->blanks);
    if (p != in->end || !(seen & 1u << RECORDS) || node_bytes > FIELDS[NODE_AT].max_bytes) return 0;
    if ((size_t)(in->end - in->start) - in->blanks - records_bytes > MAX_AROUND_RECORDS) return 0;
    if (node) give_node(write, node, node_bytes);
    return 1;
}

/* A new reference: a Write, or None for a mistake. */
static PyObject *decoded(PyObject *bytes, int publish) {
    Write *self = new_write(bytes);
    if (!self) return NULL;
    Text start = (Text)PyBytes_AS_STRING(bytes);
    size_t size = (size_t)PyBytes_GET_SIZE(bytes);
    Body in = {.write = self, .start = start, .end = start + size, .size = size, .publish = publish};
    PyThreadState *released = size > LARGE_BYTES ? PyEval_SaveThread() : NULL;
    int is_sound = body(&in);
    if (released) PyEval_RestoreThread(released);
    if (is_sound) return (PyObject *)self;
    int no_memory = self->no_memory;
    Py_DECREF(self);
    return no_memory ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

/* The value of the only keyword that a function takes; `otherwise` if it is missing, NULL if there is another. */
static PyObject *keyword(PyObject *names, PyObject *const *values, const char *name, PyObject *otherwise) {
    if (!names || !PyTuple_GET_SIZE(names)) return otherwise;
    int is_known = PyTuple_GET_SIZE(names) == 1 && !PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), name);
    return is_known ? values[0] : NULL;
}

static PyObject *decode(PyObject *module, PyObject *const *given, Py_ssize_t count, PyObject *names) {
    PyObject *publish = keyword(names, given + count, "publish", Py_False), *list;
    int is_command = publish ? PyObject_IsTrue(publish) : -1;
    if (count != 1 || is_command < 0 || !PyList_CheckExact(given[0])) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "decode(bodies: list[bytes], *, publish: bool = False)");
        return NULL;
    }
    if (!(list = PyList_New(PyList_GET_SIZE(given[0])))) return NULL;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        /* Another thread may change the list while this one has released the GIL. */
        PyObject *bytes = i < PyList_GET_SIZE(given[0]) ? PyList_GET_ITEM(given[0], i) : NULL, *one = NULL;
        if (bytes && PyBytes_Check(bytes)) one = decoded(bytes, is_command);
        else PyErr_SetString(PyExc_TypeError, "a body is bytes");
        if (!one) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, i, one);
    }
    return list;
}

/* --- columns --------------------------------------------------------------------------------------------------- */

/* A column as a tuple, which nobody changes, or None; 0 with an exception set if it is neither. */
static int keep_column(PyObject *kept, Py_ssize_t at, PyObject *column, Py_ssize_t count) {
    if (column != Py_None && (!PyList_CheckExact(column) || PyList_GET_SIZE(column) != count)) {
        PyErr_SetString(PyExc_ValueError, "columns have different lengths");
        return 0;
    }
    PyTuple_SET_ITEM(kept, at, column == Py_None ? Py_NewRef(Py_None) : PyList_AsTuple(column));
    return PyTuple_GET_ITEM(kept, at) != NULL;
}

/* The UTF-8 of a string in a column; 0 if it cannot be had. */
static int text_in(PyObject *column, Py_ssize_t i, Text *text, uint32_t *bytes) {
    PyObject *one = column == Py_None ? Py_None : PyTuple_GET_ITEM(column, i);
    Py_ssize_t size;
    if (one == Py_None) return 1;
    if (!PyUnicode_Check(one)) {
        PyErr_SetString(PyExc_TypeError, "a name is a str");
        return 0;
    }
    if (!(*text = (Text)PyUnicode_AsUTF8AndSize(one, &size))) return 0;
    *bytes = (uint32_t)size;
    return 1;
}

/* Whether all cells are single values, without blanks and within the limits of a record. */
static int are_values(Text text, const char *offsets, Py_ssize_t count) {
    for (Py_ssize_t i = 0; i < count; i++) {
        size_t blanks = 0;
        Text p = text + u32_at(offsets + 4 * i), end = text + u32_at(offsets + 4 * i + 4);
        if (end - p > MAX_RECORD || value(p, end, 0, &blanks) != end || blanks || !is_utf8(p, end)) return 0;
    }
    return 1;
}

/* Fills an empty write; 0 with an exception set. `kept` holds the data, and tuples of metas and of each field. */
static int take_columns(Write *self, PyObject *kept, const char *offsets, Py_ssize_t count) {
    PyObject *metas = PyTuple_GET_ITEM(kept, 1);
    for (Py_ssize_t i = 0; i < count; i++) {
        Record one = {0};
        uint32_t begin = u32_at(offsets + 4 * i);
        one.data = (Text)self->buffer.buf + begin;
        one.data_raw = one.data_bytes = u32_at(offsets + 4 * i + 4) - begin;
        PyObject *meta = metas == Py_None ? Py_None : PyTuple_GET_ITEM(metas, i);
        if (meta != Py_None) {
            if (!PyBytes_Check(meta)) {
                PyErr_SetString(PyExc_TypeError, "a meta is bytes");
                return 0;
            }
            one.meta = (Text)PyBytes_AS_STRING(meta);
            one.meta_raw = one.meta_bytes = (uint32_t)PyBytes_GET_SIZE(meta);
        }
        for (Py_ssize_t n = 2; n < PyTuple_GET_SIZE(kept); n++)
            if (!text_in(PyTuple_GET_ITEM(kept, n), i, &one.names[n - 2].text, &one.names[n - 2].bytes)) return 0;
        add(self, &one); /* there is room for it */
    }
    return 1;
}

static PyObject *from_columns(PyObject *module, PyObject *args, PyObject *names) {
    static char *keywords[] = {"data", "data_offsets", "metas", "names", "checked", NULL};
    PyObject *data, *metas, *columns, *kept = NULL, *result = NULL;
    Py_buffer offsets;
    Write *self = NULL;
    int is_checked;
    if (!PyArg_ParseTupleAndKeywords(args, names, "Oy*OO!$p:from_columns", keywords, &data, &offsets, &metas, &PyTuple_Type,
                                     &columns, &is_checked))
        return NULL;
    Py_ssize_t count = offsets.len / 4 - 1;
    Py_ssize_t fields = PyTuple_GET_SIZE(columns);
    if (fields > FIELD_COUNT) {
        PyErr_SetString(PyExc_ValueError, "there are not as many fields");
        goto done;
    }
    if (!(kept = PyTuple_New(2 + fields))) goto done;
    PyTuple_SET_ITEM(kept, 0, Py_NewRef(data));
    if (!keep_column(kept, 1, metas, count)) goto done;
    for (Py_ssize_t i = 0; i < fields; i++)
        if (!keep_column(kept, 2 + i, PyTuple_GET_ITEM(columns, i), count)) goto done;
    if (!(self = new_write(kept)) || PyObject_GetBuffer(data, &self->buffer, PyBUF_SIMPLE)) goto done;
    int32_t before = 0, edge;
    int is_sound = count >= 0;
    for (Py_ssize_t i = 0; i <= count; i++, before = edge) {
        edge = (int32_t)u32_at((char *)offsets.buf + 4 * i);
        is_sound &= edge >= before && edge <= self->buffer.len;
    }
    if (!is_sound) {
        PyErr_SetString(PyExc_ValueError, "data_offsets do not fit data");
        goto done;
    }
    if (!is_checked) {
        Py_BEGIN_ALLOW_THREADS
        is_sound = are_values(self->buffer.buf, offsets.buf, count);
        Py_END_ALLOW_THREADS
    }
    if (!is_sound) result = Py_NewRef(Py_None);
    else if (!make_room(self, (size_t)count)) PyErr_NoMemory();
    else if (take_columns(self, kept, offsets.buf, count)) result = Py_NewRef((PyObject *)self);
done:
    PyBuffer_Release(&offsets);
    Py_XDECREF(kept);
    Py_XDECREF(self);
    return result;
}

/* --- names ----------------------------------------------------------------------------------------------------- */

/* The names of one field of all records of these writes, whose sums are `all`; None if there are none. */
static PyObject *column_of(PyObject *const *writes, Py_ssize_t count, const Totals *all, int field) {
    if (!all->names[field]) return Py_NewRef(Py_None);
    PyObject *list = PyList_New((Py_ssize_t)all->count), *one = NULL;
    const Value *name, *before = NULL;
    Py_ssize_t at = 0;
    for (Py_ssize_t n = 0; n < count; n++) {
        const Write *write = (Write *)writes[n];
        for (size_t i = 0; list && i < write->totals.count; i++, before = name) {
            name = &write->records[i].names[field];
            /* Neighbours often have the same name: they share one string. */
            if (!name->text) one = Py_NewRef(Py_None);
            else if (before && before->text && name->bytes == before->bytes && !memcmp(name->text, before->text, name->bytes))
                Py_INCREF(one);
            else one = PyUnicode_DecodeUTF8((const char *)name->text, name->bytes, NULL);
            if (one) PyList_SET_ITEM(list, at++, one);
            else Py_CLEAR(list);
        }
    }
    return list;
}

/* The column of each field; empty if no record has a name. */
static PyObject *columns_of(PyObject *const *writes, Py_ssize_t count, const Totals *all) {
    PyObject *columns = PyTuple_New(all->all_names ? FIELD_COUNT : 0);
    for (int i = 0; columns && all->all_names && i < FIELD_COUNT; i++) {
        PyObject *column = column_of(writes, count, all, i);
        if (column) PyTuple_SET_ITEM(columns, i, column);
        else Py_CLEAR(columns);
    }
    return columns;
}

/* --- encode ---------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    PyObject *payload, *ends, *hops, *names;
    Py_ssize_t count, size, text_bytes;
    unsigned long long first_seq, ts;
    int flags;
} Rows;

static PyTypeObject RowsType;

enum { HAS_META = 1, HAS_HOPS = 8, PAYLOAD_HEAD = 8 };

/* MessagePack: the length of an array or a string. Lengths below `most` are part of the `fixed` code; `wide` is the
 * code of a length of 16 bits, before it comes that of 8 bits for strings, and after it that of 32 bits. */
static char *put_length(char *w, uint64_t length, uint64_t most, int fixed, int wide) {
    int shift = length < most ? -8 : fixed == 0xa0 && length < 1 << 8 ? 0 : length < 1 << 16 ? 8 : 24;
    *w++ = (char)(shift < 0 ? fixed | (int)length : shift == 0 ? wide - 1 : shift == 8 ? wide : wide + 1);
    for (; shift >= 0; shift -= 8) *w++ = (char)(length >> shift);
    return w;
}

static char *put_count(char *w, uint64_t count) { return put_length(w, count, 16, 0x90, 0xdc); }

static uint64_t count_bytes(uint64_t count) { return count < 16 ? 1 : count < 1 << 16 ? 3 : 5; }

/* A string or nil. */
static char *put_name(char *w, Text text, uint32_t bytes) {
    if (!text) {
        *w++ = (char)0xc0;
        return w;
    }
    w = put_length(w, bytes, 32, 0xa0, 0xda);
    return PUT(text, bytes);
}

/* The job of one call of `encode`: what to render, how long its parts are, and where it goes. */
typedef struct {
    PyObject *const *writes;
    Py_ssize_t count;
    Totals totals;
    uint64_t first_seq, text_bytes, names_bytes[FIELD_COUNT];
    Text hops;
    /* The text between the seq of a row and its node or data. */
    char stamp[7 + MOST_DIGITS];
    int stamp_bytes;
    char *payload, *ends;
} Job;

#define EACH_RECORD(job, r)                                                                                  \
    for (Py_ssize_t n_ = 0; n_ < (job)->count; n_++)                                                         \
        for (const Record *r = ((Write *)(job)->writes[n_])->records,                                        \
                          *end_ = r + ((Write *)(job)->writes[n_])->totals.count;                            \
             r < end_; r++)

/* Adds up the lengths; returns that of the whole payload. */
static uint64_t measure(Job *job, uint64_t ts) {
    Totals *all = &job->totals;
    for (Py_ssize_t n = 0; n < job->count; n++) {
        const uint64_t *own = (const uint64_t *)&((Write *)job->writes[n])->totals;
        for (size_t i = 0; i < sizeof(Totals) / sizeof(uint64_t); i++) ((uint64_t *)all)[i] += own[i];
    }
    memcpy(job->stamp, ",\"$ts\":", 7);
    job->stamp_bytes = 7 + decimal(job->stamp + 7, ts);
    job->text_bytes = digits_of(job->first_seq, all->count) + all->count * (8 + (uint64_t)job->stamp_bytes + 8 + 2) +
                      all->data_bytes + all->meta_bytes + 8 * all->metas;
    uint64_t beside = 4 * all->count * (1 + (all->metas > 0)) + (job->hops ? all->count : 0);
    for (int i = 0; all->all_names && i < FIELD_COUNT; i++) {
        if (!all->names[i]) continue;
        job->names_bytes[i] = count_bytes(all->count) + all->packed[i] + all->count - all->names[i];
        beside += job->names_bytes[i];
        if (FIELDS[i].is_in_row) job->text_bytes += all->json_bytes[i] + (FIELDS[i].key.bytes + 1) * all->names[i];
    }
    return PAYLOAD_HEAD + job->text_bytes + beside;
}

static void render(const Job *job) {
    uint32_t lengths[2] = {(uint32_t)job->text_bytes, (uint32_t)job->names_bytes[0]};
    char seq[MOST_DIGITS + 1], *w = job->payload, *end_at = job->ends;
    int seq_bytes = decimal(seq, job->first_seq);
    PUT(lengths, PAYLOAD_HEAD);
    char *text = w;
    EACH_RECORD(job, r) {
        PUT_ALL("{\"$seq\":");
        PUT(seq, seq_bytes);
        PUT(job->stamp, job->stamp_bytes);
        for (int i = 0; job->totals.all_names && i < FIELD_COUNT; i++) {
            const Value *name = &r->names[i];
            if (!name->text || !FIELDS[i].is_in_row) continue;
            PUT(FIELDS[i].key.text, FIELDS[i].key.bytes);
            w = put_json_text(w, name->text, name->bytes, name->json_bytes);
            *w++ = '"';
        }
        PUT_ALL(",\"data\":");
        w = put_value(w, r->data, r->data_raw, r->data_bytes);
        if (r->meta) {
            PUT_ALL(",\"meta\":");
            w = put_value(w, r->meta, r->meta_raw, r->meta_bytes);
        }
        PUT_ALL("}\n");
        uint32_t end = (uint32_t)(w - text);
        memcpy(end_at, &end, 4);
        end_at += 4;
        seq_bytes = count_up(seq, seq_bytes);
    }
    EACH_RECORD(job, r) PUT(&r->data_bytes, 4);
    if (job->totals.metas) EACH_RECORD(job, r) PUT(&r->meta_bytes, 4);
    if (job->hops) PUT(job->hops, job->totals.count);
    for (int i = 0; i < FIELD_COUNT; i++) {
        if (!job->totals.names[i]) continue;
        w = put_count(w, job->totals.count);
        EACH_RECORD(job, r) w = put_name(w, r->names[i].text, r->names[i].bytes);
    }
}

/* The rows of a job whose payload and ends are to be made. */
static PyObject *rendered(Job *job, uint64_t ts, PyObject *hops) {
    uint64_t bytes = measure(job, ts), count = job->totals.count;
    if (bytes > UINT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a payload has less than 4 GiB");
        return NULL;
    }
    Rows *self = PyObject_New(Rows, &RowsType);
    if (!self) return NULL;
    self->payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    self->ends = PyBytes_FromStringAndSize(NULL, 4 * (Py_ssize_t)count);
    self->names = columns_of(job->writes, job->count, &job->totals);
    self->hops = Py_NewRef(hops);
    self->count = (Py_ssize_t)count;
    self->size = (Py_ssize_t)(job->totals.data_bytes + job->totals.meta_bytes);
    self->text_bytes = (Py_ssize_t)job->text_bytes;
    self->first_seq = job->first_seq;
    self->ts = ts;
    self->flags = (job->totals.metas ? HAS_META : 0) | (job->hops ? HAS_HOPS : 0);
    for (int i = 0; i < FIELD_COUNT; i++) self->flags |= job->totals.names[i] ? FIELDS[i].flag : 0;
    if (!self->payload || !self->ends || !self->names) {
        Py_DECREF(self);
        return NULL;
    }
    job->payload = PyBytes_AS_STRING(self->payload);
    job->ends = PyBytes_AS_STRING(self->ends);
    PyThreadState *released = bytes > LARGE_BYTES ? PyEval_SaveThread() : NULL;
    render(job);
    if (released) PyEval_RestoreThread(released);
    return (PyObject *)self;
}

static PyObject *encode(PyObject *module, PyObject *const *given, Py_ssize_t count, PyObject *names) {
    PyObject *hops = keyword(names, given + count, "hops", count == 4 ? given[3] : Py_None), *writes, *result = NULL;
    if ((count != 3 && (count != 4 || names)) || !hops || !PyList_CheckExact(given[0]) ||
        (hops != Py_None && !PyBytes_CheckExact(hops))) {
        PyErr_SetString(PyExc_TypeError, "encode(writes: list[Write], first_seq: int, ts: int, hops: bytes | None = None)");
        return NULL;
    }
    uint64_t first = PyLong_AsUnsignedLongLong(given[1]), ts = PyLong_AsUnsignedLongLong(given[2]);
    if (PyErr_Occurred()) return NULL;
    if (first > INT64_MAX || ts > INT64_MAX) {
        PyErr_SetString(PyExc_OverflowError, "seqs and times have 63 bits");
        return NULL;
    }
    /* A tuple, which nobody changes while the GIL is released. */
    if (!(writes = PyList_AsTuple(given[0]))) return NULL;
    Job job = {.writes = ((PyTupleObject *)writes)->ob_item, .count = PyTuple_GET_SIZE(writes), .first_seq = first};
    uint64_t records = 0;
    for (Py_ssize_t i = 0; i < job.count; i++) {
        if (!Py_IS_TYPE(job.writes[i], &WriteType)) {
            PyErr_SetString(PyExc_TypeError, "writes are of the type Write");
            goto done;
        }
        records += ((Write *)job.writes[i])->totals.count;
    }
    if (hops != Py_None) {
        if ((uint64_t)PyBytes_GET_SIZE(hops) != records) {
            PyErr_SetString(PyExc_ValueError, "hops has one byte for each record");
            goto done;
        }
        job.hops = (Text)PyBytes_AS_STRING(hops);
    }
    result = rendered(&job, ts, hops);
done:
    Py_DECREF(writes);
    return result;
}

static void rows_dealloc(PyObject *object) {
    Rows *self = (Rows *)object;
    Py_XDECREF(self->payload);
    Py_XDECREF(self->ends);
    Py_XDECREF(self->hops);
    Py_XDECREF(self->names);
    PyObject_Free(self);
}

static PyObject *lengths_at(Rows *self, Py_ssize_t at) {
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self->payload) + PAYLOAD_HEAD + self->text_bytes + at, 4 * self->count);
}

static PyObject *get_text(PyObject *object, void *unused) {
    Rows *self = (Rows *)object;
    if (self->text_bytes <= COPIED_BYTES)
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(self->payload) + PAYLOAD_HEAD, self->text_bytes);
    PyObject *view = PyMemoryView_FromObject(self->payload), *text;
    if (!view) return NULL;
    text = PySequence_GetSlice(view, PAYLOAD_HEAD, PAYLOAD_HEAD + self->text_bytes);
    Py_DECREF(view);
    return text;
}

static PyObject *get_data_lens(PyObject *self, void *unused) { return lengths_at((Rows *)self, 0); }

static PyObject *get_meta_lens(PyObject *object, void *unused) {
    Rows *self = (Rows *)object;
    return self->flags & HAS_META ? lengths_at(self, 4 * self->count) : Py_NewRef(Py_None);
}

/* --- rows ------------------------------------------------------------------------------------------------------ */

/* alive(rows, ends, borders, marks, start, stop, room, budget) -> (rows, stop) or None, as `pages.py` describes it. Ends
 * are u32, or with borders u16. */
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
        uint32_t end;
        if (borders.obj) {
            uint16_t lower;
            while (border < borders.len / 4 && (Py_ssize_t)u32_at((char *)borders.buf + 4 * border) <= i) border++;
            memcpy(&lower, (char *)ends.buf + 2 * i, 2);
            end = ((uint32_t)border << 16) + lower;
        } else {
            end = u32_at((char *)ends.buf + 4 * i);
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

/* page(before, rows, after) -> bytes */
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

/* --- frames of the journal -------------------------------------------------------------------------------------- */

/* As `frames.py` has them. */
enum { FRAME_HEADER = 64, FRAME_APPEND = 4, SMALL_RECORDS = 16 };
static const char FRAME_MAGIC[] = "FPJ1";

/* The lower half of a product of 128 bits, xor its upper half. */
static uint64_t folded_product(uint64_t left, uint64_t right) {
    uint64_t low = (uint32_t)left * (uint64_t)(uint32_t)right, one = (uint32_t)left * (right >> 32);
    uint64_t middle = (low >> 32) + (uint32_t)one + (left >> 32) * (uint32_t)right;
    return ((middle >> 32) + (one >> 32) + (left >> 32) * (right >> 32)) ^ left * right;
}

/* The lower half of XXH3 of 56 bytes. */
static uint32_t header_checksum(const char *fields) {
    uint64_t sum = 56 * 0x9E3779B185EBCA87ULL;
    sum += folded_product(u64_at(fields) ^ 0xBE4BA423396CFEB8ULL, u64_at(fields + 8) ^ 0x1CAD21F72C81017CULL);
    sum += folded_product(u64_at(fields + 16) ^ 0x78E5C0CC4EE679CBULL, u64_at(fields + 24) ^ 0x2172FFCC7DD05A82ULL);
    sum += folded_product(u64_at(fields + 24) ^ 0x8E2443F7744608B8ULL, u64_at(fields + 32) ^ 0x4C263A81E69035E0ULL);
    sum += folded_product(u64_at(fields + 40) ^ 0xDB979083E96DD4DEULL, u64_at(fields + 48) ^ 0x1F67B3B7A4A44072ULL);
    sum = (sum ^ sum >> 37) * 0x165667919E3779F9ULL;
    return (uint32_t)(sum ^ sum >> 32);
}

/* find_frames(window, topic_id, first_seq, position) -> the places of frames, and the end of the last one, as int64 */
static PyObject *find_frames(PyObject *module, PyObject *args) {
    const char *window;
    Py_ssize_t bytes, at = 0, found = 0;
    unsigned long long topic, seq, position;
    if (!PyArg_ParseTuple(args, "y#KKK:find_frames", &window, &bytes, &topic, &seq, &position)) return NULL;
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

/* frame_parts(window, starts) -> (rows, lengths) of all these frames */
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

/* --- the module ------------------------------------------------------------------------------------------------ */

static PyObject *get_key(PyObject *object, void *unused) {
    Write *self = (Write *)object;
    return self->key ? PyBytes_FromStringAndSize((const char *)self->key, self->key_bytes) : Py_NewRef(Py_None);
}

static PyObject *get_create(PyObject *object, void *unused) {
    int create = ((Write *)object)->create;
    return create < 0 ? Py_NewRef(Py_None) : PyBool_FromLong(create);
}

static PyObject *get_config(PyObject *object, void *unused) {
    Write *self = (Write *)object;
    if (!self->config) return Py_NewRef(Py_None);
    PyObject *text = PyBytes_FromStringAndSize(NULL, self->config_bytes);
    if (text) put_value(PyBytes_AS_STRING(text), self->config, self->config_raw, self->config_bytes);
    return text;
}

static PyObject *get_size(PyObject *object, void *unused) {
    const Totals *totals = &((Write *)object)->totals;
    return PyLong_FromUnsignedLongLong(totals->data_bytes + totals->meta_bytes);
}

#define GET(name) {#name, get_##name, NULL, NULL, NULL}
#define FIELD(type, of, name) {#name, type, offsetof(of, name), READONLY, NULL}

static PyGetSetDef write_getters[] = {GET(key), GET(create), GET(config), GET(size), {NULL, NULL, NULL, NULL, NULL}};

static PyMemberDef write_fields[] = {
    {"count", T_ULONGLONG, offsetof(Write, totals.count), READONLY, NULL},
    FIELD(T_BOOL, Write, patient),
    FIELD(T_BOOL, Write, return_seqs),
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject WriteType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "topics.codec._native.Write",
    .tp_basicsize = sizeof(Write),
    .tp_dealloc = write_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_members = write_fields,
    .tp_getset = write_getters,
};

static PyGetSetDef rows_getters[] = {GET(text), GET(data_lens), GET(meta_lens), {NULL, NULL, NULL, NULL, NULL}};

static PyMemberDef rows_fields[] = {
    FIELD(T_OBJECT, Rows, payload),
    FIELD(T_OBJECT, Rows, ends),
    FIELD(T_OBJECT, Rows, hops),
    FIELD(T_OBJECT, Rows, names),
    FIELD(T_PYSSIZET, Rows, count),
    FIELD(T_PYSSIZET, Rows, size),
    FIELD(T_ULONGLONG, Rows, first_seq),
    FIELD(T_ULONGLONG, Rows, ts),
    FIELD(T_INT, Rows, flags),
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject RowsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "topics.codec._native.Rows",
    .tp_basicsize = sizeof(Rows),
    .tp_dealloc = rows_dealloc,
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_members = rows_fields,
    .tp_getset = rows_getters,
};

#define FAST(name, flags) {#name, (PyCFunction)(void (*)(void))name, flags, NULL}

static PyMethodDef functions[] = {
    FAST(decode, METH_FASTCALL | METH_KEYWORDS),
    FAST(encode, METH_FASTCALL | METH_KEYWORDS),
    FAST(from_columns, METH_VARARGS | METH_KEYWORDS),
    FAST(page, METH_FASTCALL),
    {"alive", alive, METH_VARARGS, NULL},
    {"find_frames", find_frames, METH_VARARGS, NULL},
    {"frame_parts", frame_parts, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, functions, NULL, NULL, NULL, NULL};

/* The named fields, for `topics/codec/native.py` to compare. */
static PyObject *fields(void) {
    PyObject *all = PyTuple_New(FIELD_COUNT);
    for (int i = 0; all && i < FIELD_COUNT; i++)
        PyTuple_SET_ITEM(all, i, Py_BuildValue("(sIii)", FIELDS[i].name.text, FIELDS[i].max_bytes, FIELDS[i].flag, FIELDS[i].is_in_row));
    return all;
}

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *module;
    if (PyType_Ready(&WriteType) < 0 || PyType_Ready(&RowsType) < 0 || !(module = PyModule_Create(&definition))) return NULL;
    if (PyModule_AddObjectRef(module, "Write", (PyObject *)&WriteType) ||
        PyModule_AddObjectRef(module, "Rows", (PyObject *)&RowsType) ||
        PyModule_AddObject(module, "LIMITS",
                           Py_BuildValue("(iiiiii)", MAX_RECORDS, MAX_RECORD, MAX_META, MAX_META_KEYS, MAX_DEPTH,
                                         MAX_AROUND_RECORD)) ||
        PyModule_AddObject(module, "FIELDS", fields()) ||
        PyModule_AddStringConstant(module, "SOURCE", SOURCE)) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
