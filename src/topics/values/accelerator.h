/* What the files of the accelerator share. */
#ifndef TOPICS_ACCELERATOR_H
#define TOPICS_ACCELERATOR_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>

extern PyTypeObject SocketsType;  /* sockets.c */
extern PyTypeObject TogetherType; /* together.c */
extern PyTypeObject PlacesType;   /* keys.c */

/* --- idempotency keys -------------------------------------------------------------------------------------------- */

enum { SALT_BYTES = 16, DIGEST_BYTES = 16 };

void digest_of_key(const unsigned char salt[SALT_BYTES], const char *key, size_t bytes, char to[DIGEST_BYTES]);
PyObject *key_digest(PyObject *module, PyObject *const *given, Py_ssize_t count);

/* Some bits of a digest, which tell it from nearly all others. */
uint64_t place_of(const char *digest);
/* Of `Places`. 1 if it was free; 0 if it is taken; -1 if there is no memory, without an exception. */
int take_place(PyObject *places, uint64_t place, PyObject *chunk);
/* It will be asked for soon: a large table is not at hand. */
void expect_place(PyObject *places, uint64_t place);
/* 0 if it was not taken. */
int leave_place(PyObject *places, uint64_t place);

/* --- text --------------------------------------------------------------------------------------------------------- */

#define PUT(text, length) (memcpy(w, text, length), w += (length))
#define PUT_ALL(text) PUT(text, sizeof(text) - 1)

enum { MOST_DIGITS = 20 };

/* What the writer of one record is told: something, its seq in four places, and something else. */
typedef struct {
    const char *before, *after;
    Py_ssize_t before_bytes, after_bytes;
    char seq[MOST_DIGITS + 1];
    int seq_bytes;
} SeqAnswer;

SeqAnswer seq_answer(const char *before, Py_ssize_t before_bytes, uint64_t seq, PyObject *after);
Py_ssize_t seq_answer_bytes(const SeqAnswer *answer);
/* Writes digits, and returns how many. */
int decimal(char *to, uint64_t n);

/* Returns where it ends. */
char *put_seq_answer(char *w, const SeqAnswer *answer);
void next_seq(SeqAnswer *answer);

/* --- frames ---------------------------------------------------------------------------------------------------- */

/* The rows in a frame: where they begin, how many bytes they have; where each of them ends, as u32 in bytes of their
 * own; and how much data the records have. */
typedef struct {
    Py_ssize_t at, bytes;
    PyObject *ends;
    uint64_t data_bytes;
} PlainRows;

PyObject *make_plain_frame(uint8_t kind, PyObject *keys, PyObject *bodies, uint64_t topic, uint64_t first, uint64_t ts,
                           uint64_t ahead_ms, uint64_t synced, uint64_t offset, PyObject *digest, PlainRows *rows);

/* --- heads of requests -------------------------------------------------------------------------------------------- */

/* The line of an idempotency key in a head: where it begins, where the key does, and where both end. */
typedef struct {
    const unsigned char *start, *key, *stop;
} KeyLine;

/* 0 if there is no such line, or one that the parser has to see. */
int key_in_head(const unsigned char *start, const unsigned char *end, KeyLine *found);
/* The same for one that begins there. */
int key_line_at(const unsigned char *start, const unsigned char *end, KeyLine *found);
PyObject *head_without(const unsigned char *start, const unsigned char *end, const KeyLine *line);

/* --- slots: fields of Python objects, found once by name and then read where they are ------------------------- */

#define SLOT(object, offset) (*(PyObject **)((char *)(object) + (offset)))

/* 0 if one of the names is no slot of the type. */
static inline int find_slots(PyTypeObject *type, const char *const *names, int count, Py_ssize_t *offsets) {
    for (int i = 0; i < count; i++) {
        PyObject *found = PyObject_GetAttrString((PyObject *)type, names[i]);
        if (!found) return 0;
        int is_slot = Py_IS_TYPE(found, &PyMemberDescr_Type) &&
                      ((PyMemberDescrObject *)found)->d_member->type == T_OBJECT_EX;
        if (is_slot) offsets[i] = ((PyMemberDescrObject *)found)->d_member->offset;
        Py_DECREF(found);
        if (!is_slot) {
            PyErr_Format(PyExc_TypeError, "%s is no slot", names[i]);
            return 0;
        }
    }
    return 1;
}

/* Takes the reference over. */
static inline void put(PyObject **slot, PyObject *value) {
    PyObject *before = *slot;
    *slot = value;
    Py_XDECREF(before);
}

/* The list has only so many items, its first ones. Cutting a slice off may take memory, and fail where there is none. */
static inline void shorten(PyObject *list, Py_ssize_t count) {
    while (PyList_GET_SIZE(list) > count) {
        Py_ssize_t last = PyList_GET_SIZE(list) - 1;
        PyObject *item = PyList_GET_ITEM(list, last);
        Py_SET_SIZE(list, last);
        Py_DECREF(item);
    }
}

/* -1 if it is no number, or too large a one. */
static inline long number_in(PyObject *slot) {
    int overflow;
    return slot && PyLong_CheckExact(slot) ? PyLong_AsLongAndOverflow(slot, &overflow) : -1;
}

#endif
