# cython: language_level=3, auto_pickle=False, autotestdict=False
"""Avro records in one pass: the fields of primitive types, and those that may be null besides.

An encoder writes objects of exact types only, where there is one way to understand the schema. It
hands every other record to fastavro as a whole, so that its errors are fastavro's.
The format is that of the Avro specification, "Binary Encoding".
"""

cimport cython
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_CheckExact,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from cpython.datetime cimport (
    PyDate_CheckExact,
    PyDateTime_CheckExact,
    date_day,
    date_month,
    date_year,
    datetime_hour,
    datetime_microsecond,
    datetime_minute,
    datetime_second,
    datetime_tzinfo,
    get_utc,
    import_datetime,
)
from cpython.dict cimport PyDict_CheckExact
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsDouble, PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_CheckExact
from libc.math cimport isinf
from libc.stdint cimport INT32_MAX, INT32_MIN, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kprod_ext.avro cimport (
    LARGEST_NUMBER,
    Output,
    make_room,
    put_bytes,
    put_little_endian,
    put_plain,
)
from kprod_ext.record cimport put_varint
from kprod_ext.shared cimport kprod_look_up

import_datetime()

cdef enum:
    FIRST_ROOM = 1024           # bytes of a record that need no memory of their own
    DAY = 24 * 60 * 60

cdef enum Kind:
    BOOLEAN
    INT
    LONG
    FLOAT
    DOUBLE
    STRING
    BYTES
    FIXED
    ENUM
    DATE
    MILLIS
    MICROS
    OTHER                       # written by fastavro, field by field

cdef dict KINDS = {
    "boolean": BOOLEAN, "int": INT, "long": LONG, "float": FLOAT, "double": DOUBLE,
    "string": STRING, "bytes": BYTES, "fixed": FIXED, "enum": ENUM, "int-date": DATE,
    "long-timestamp-millis": MILLIS, "long-timestamp-micros": MICROS, "other": OTHER,
}
cdef object UTC = get_utc()


cdef struct Field:
    Kind kind
    int null_branch             # of a union with null: 0 or 1; -1: the field is no union
    Py_ssize_t size             # of FIXED


@cython.cdivision(True)
cdef inline int64_t days_since_epoch(int64_t year, int64_t month, int64_t day) noexcept:
    """Days of the proleptic Gregorian calendar; years begin in March here: leap days come last.

    Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms". Years are positive.
    """
    if month <= 2:
        year -= 1
        month += 12
    return (
        365 * year + year // 4 - year // 100 + year // 400 + (153 * (month - 3) + 2) // 5
        + day - 719469
    )


cdef inline int64_t seconds_since_epoch(object moment) noexcept:
    return (
        DAY * days_since_epoch(date_year(moment), date_month(moment), date_day(moment))
        + 3600 * datetime_hour(moment) + 60 * datetime_minute(moment) + datetime_second(moment)
    )


cdef int put_integer(Output* out, Kind kind, object value) except -1:
    """Write an integer, a date or a moment in UTC. Returns 0 for any other object."""
    cdef int64_t number
    cdef int overflow = 0
    if PyLong_CheckExact(value):
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow or ((kind == INT or kind == DATE) and not INT32_MIN <= number <= INT32_MAX):
            return 0
    elif kind == DATE and PyDate_CheckExact(value):
        number = days_since_epoch(date_year(value), date_month(value), date_day(value))
    elif PyDateTime_CheckExact(value) and datetime_tzinfo(value) is UTC:
        if kind == MILLIS:
            number = 1_000 * seconds_since_epoch(value) + datetime_microsecond(value) // 1_000
        elif kind == MICROS:
            number = 1_000_000 * seconds_since_epoch(value) + datetime_microsecond(value)
        else:
            return 0
    else:
        return 0
    out.at = put_varint(out.at, number)
    return 1


cdef int put_floating(Output* out, Kind kind, object value) except -1:
    """Write a float, or an integer as one. Returns 0 for any other object and one too large."""
    cdef double number
    cdef float narrow
    cdef uint32_t few_bits
    cdef uint64_t bits
    if PyFloat_CheckExact(value):
        number = PyFloat_AS_DOUBLE(value)
    elif PyLong_CheckExact(value):
        number = PyLong_AsDouble(value)
    else:
        return 0
    if kind == DOUBLE:
        memcpy(&bits, &number, 8)
        put_little_endian(out, bits, 8)
    else:
        narrow = <float>number
        if isinf(narrow) and not isinf(number):
            return 0
        memcpy(&few_bits, &narrow, 4)
        put_little_endian(out, few_bits, 4)
    return 1


cdef int put_other(Output* out, object write, object value) except -1:
    """Write the bytes that ``write`` makes of an object. Returns 0 when it raises."""
    cdef bytes encoded
    try:
        encoded = write(value)
    except Exception:
        return 0
    put_plain(out, PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded))
    return 1


@cython.final
cdef class FlatRecordEncoder:
    """Writes a prefix and a record of one schema."""

    cdef Field* _fields
    cdef Py_ssize_t _count
    cdef list _names, _defaults, _extras        # by field; an extra is what its kind needs
    cdef bytes _prefix
    cdef object _otherwise

    def __cinit__(self, list fields not None, bytes prefix not None, otherwise):
        cdef Py_ssize_t i
        self._count = len(fields)
        self._fields = <Field*>PyMem_Calloc(<size_t>max(1, self._count), sizeof(Field))
        if self._fields == NULL:
            raise MemoryError(f"no memory for {self._count} fields")
        self._names, self._defaults, self._extras = [], [], []
        self._prefix, self._otherwise = prefix, otherwise
        for i, (name, kind, null_branch, default, extra) in enumerate(fields):
            self._fields[i].kind = KINDS[kind]
            self._fields[i].null_branch = null_branch
            self._fields[i].size = extra if kind == "fixed" else 0
            self._names.append(name)
            self._defaults.append(default)
            self._extras.append(extra)

    def __dealloc__(self):
        PyMem_Free(self._fields)

    @cython.binding(False)
    def encode(self, data):
        cdef char room[FIRST_ROOM]
        cdef Output out
        cdef Py_ssize_t size = PyBytes_GET_SIZE(self._prefix)
        cdef bytes encoded = None
        out.start = out.at = room
        out.end = room + FIRST_ROOM
        out.owned = False
        try:
            if PyDict_CheckExact(data):
                put_plain(&out, PyBytes_AS_STRING(self._prefix), size)
                if self._put_fields(&out, <dict>data):
                    encoded = PyBytes_FromStringAndSize(out.start, out.at - out.start)
        except (OverflowError, UnicodeEncodeError):
            pass                                # fastavro raises an error with the cause
        finally:
            if out.owned:
                PyMem_Free(out.start)
        return self._otherwise(data) if encoded is None else encoded

    cdef int _put_fields(self, Output* out, dict data) except -1:
        """Returns 0 when there is an object that is not written here."""
        cdef Py_ssize_t i
        cdef object value
        cdef Field* field
        for i in range(self._count):
            field = &self._fields[i]
            value = kprod_look_up(data, self._names[i])
            if value is None:
                value = self._defaults[i]
                if value is not None and self._names[i] in data:
                    value = None
            make_room(out, LARGEST_NUMBER)
            if field.null_branch >= 0:
                out.at = put_varint(out.at, field.null_branch ^ (value is not None))
                if value is None:
                    continue
            if not self._put(out, i, field, value):
                return 0
        return 1

    cdef int _put(self, Output* out, Py_ssize_t i, Field* field, object value) except -1:
        """Write a value other than null. Returns 0 for an object that is not written here."""
        cdef const char* text
        cdef Py_ssize_t size
        if field.kind == STRING:
            if not PyUnicode_CheckExact(value):
                return 0
            text = PyUnicode_AsUTF8AndSize(value, &size)
            put_bytes(out, text, size)
        elif field.kind == FLOAT or field.kind == DOUBLE:
            return put_floating(out, field.kind, value)
        elif field.kind == BOOLEAN:
            if value is not True and value is not False:
                return 0
            out.at[0] = value is True
            out.at += 1
        elif field.kind == BYTES:
            if not PyBytes_CheckExact(value):
                return 0
            put_bytes(out, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
        elif field.kind == FIXED:
            if not PyBytes_CheckExact(value) or PyBytes_GET_SIZE(value) != field.size:
                return 0
            put_plain(out, PyBytes_AS_STRING(value), field.size)
        elif field.kind == ENUM:
            number = kprod_look_up(self._extras[i], value) if PyUnicode_CheckExact(value) else None
            return 0 if number is None else put_integer(out, INT, number)
        elif field.kind == OTHER:
            return put_other(out, self._extras[i], value)
        else:
            return put_integer(out, field.kind, value)
        return 1
