"""Converting lines of text to records, and records to lines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kprod.cli.record_lines import BadLineError, LineReader, LineRecord, json_line, unescaped
from kprod.cli.record_template import RecordTemplate
from kprod.records.record_batch import StoredRecord


def read(text: bytes, key_separator: bytes | None = None) -> list[LineRecord | BadLineError]:
    return list(LineReader(key_separator=key_separator).read([text]))


def values(*data: bytes) -> list[LineRecord]:
    return [LineRecord(number, None, each) for number, each in enumerate(data, start=1)]


def test_a_line_without_its_terminator_is_a_value() -> None:
    assert read(b"a\nb\r\n\nno end") == values(b"a", b"b", b"", b"no end")
    assert read(b"a\rb\r\r\n\x85\x0b\n\r") == values(b"a\rb\r", b"\x85\x0b", b"\r")


def test_the_key_ends_at_the_first_separator() -> None:
    found = read(b"k::v::w\n::v\nk::\n", b"::")
    assert found == [
        LineRecord(number, key, value)
        for number, key, value in ((1, b"k", b"v::w"), (2, b"", b"v"), (3, b"k", b""))
    ]


def test_a_line_without_a_separator_is_an_error() -> None:
    first, second = read(b"v\nk:v\n", b":")
    assert isinstance(first, BadLineError)
    assert str(first) == "line 1: no key: ':' is not in the line"
    assert second == LineRecord(2, b"k", b"v")


@pytest.mark.parametrize("size", [1, 2, 65_536])
def test_a_delimiter_may_span_two_reads(size: int) -> None:
    text = b"||".join([b"x" * 65_535, b"", b"y|y", b""]) + b"||\n"
    chunks = [text[start : start + size] for start in range(0, len(text), size)]
    found = list(LineReader(delimiter=b"||").read(chunks))
    assert found == values(b"x" * 65_535, b"", b"y|y", b"")


def test_a_record_is_returned_as_soon_as_its_delimiter_is_read() -> None:
    def chunks() -> Iterator[bytes]:
        yield b"a\0b"
        raise AssertionError("read on before the first record was taken")

    assert next(LineReader(delimiter=b"\0").read(chunks())) == LineRecord(1, None, b"a")


@pytest.mark.parametrize("delimiter", [b"\n", b"\0"])
def test_a_truncated_line_is_not_a_record(delimiter: bytes) -> None:
    reader = LineReader(delimiter=delimiter)
    whole, part = reader.read([b"a" + delimiter + b"b"], cut_off=lambda: True)
    assert whole == LineRecord(1, None, b"a")
    assert str(part) == "line 2: stopped before its end; it is not sent"


def from_json(text: str | bytes) -> LineRecord | BadLineError:
    (found,) = LineReader(form="json").read([text if isinstance(text, bytes) else text.encode()])
    return found


@pytest.mark.parametrize(
    "value",
    [
        *("1.10", "1e400", "-0", "12345678901234567.89", "9" * 5000, "true"),
        *('{"a":1,"a":2}', '{ "a" : [1.0 , null] }', r'["\u00e9\/", "\ud800"]', '{"a":{"b":[]}}'),
    ],
)
def test_json_that_is_not_a_string_keeps_its_text(value: str) -> None:
    line = f' {{"headers": [{{"name": "h", "value": {value} }}], "key" :{value}, "value":{value}}} '
    data = value.encode()
    assert from_json(line) == LineRecord(1, data, data, (("h", data),))


def test_a_negative_timestamp_is_ignored() -> None:
    assert from_json('{"value": "v", "timestamp": -1}') == LineRecord(1, None, b"v")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"key": "k", "vlaue": 1}', "unknown member 'vlaue'"),
        ('{"id": 1, "name": "x"}', "unknown member 'id'"),
        ('{"key": "k"}', 'expected "value" or "value_base64"'),
        ("{}", 'expected "value" or "value_base64"'),
        ('{"value": 1, "value_base64": "/w=="}', 'expected "value" or "value_base64"'),
        ('{"value": 1, "value": 2}', "'value' is given twice"),
        ('{"value": [NaN]}', "NaN is not JSON"),
        ('{"value": -Infinity}', "-Infinity is not JSON"),
        (r'{"value": "\ud800"}', "surrogates not allowed"),
        (b'{"value": "\xff"}', "invalid start byte"),
        (b'{"value": "\xed\xa0\x80"}', "invalid continuation byte"),
        ('{"value_base64": null}', "value_base64: expected a string, got null"),
        ('{"value_base64": "?"}', "value_base64: "),
        ('{"value": 1, "headers": {}}', "headers: expected a list"),
        ('{"value": 1, "headers": [{"name": "h"}]}', 'expected "value" or "value_base64"'),
        ('{"value": 1, "headers": [{"value": 1}]}', "a header is an object"),
        ('{"value": 1, "headers": ["h"]}', "expected a JSON object"),
        ('{"value": 1, "partition": 1.0}', "partition: expected a whole number, got 1.0"),
        ('{"value": 1, "partition": true}', "partition: expected a whole number, got true"),
        ('{"value": 1, "timestamp": 1e3}', "timestamp: expected a whole number, got 1e3"),
        ('{"value": 1} {"value": 2}', "Extra data"),
        ("", "Expecting value"),
    ],
)
def test_an_invalid_json_line_is_refused(line: str | bytes, complaint: str) -> None:
    found = from_json(line + b"\n" if isinstance(line, bytes) else f"{line}\n")
    assert isinstance(found, BadLineError)
    assert str(found).startswith("line 1: ")
    assert complaint in str(found)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (r"\t\n\r\0", b"\t\n\r\0"),
        (r"\x1e\xFF", b"\x1e\xff"),
        (r"\\n\\x41", rb"\n\x41"),
        ("é\udcff", b"\xc3\xa9\xff"),
    ],
)
def test_escapes_are_converted_to_bytes(text: str, meant: bytes) -> None:
    assert unescaped(text) == meant


@pytest.mark.parametrize("text", [r"\d", "\\", r"\x1", r"\xg0", "\\\n"])
def test_an_unknown_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        unescaped(text)


def stored(key: bytes | None, value: bytes | None) -> StoredRecord:
    headers = (("from", b"JFK"), ("gone", None))
    return StoredRecord(offset=7, timestamp=1000, key=key, value=value, headers=headers)


def test_every_placeholder_is_replaced() -> None:
    text = "%t [%p] at %o, %T: %k (%K) = %s (%S) %h 100 %%\n"
    printed = RecordTemplate(text)("orders", 3, stored(b"k\xff", b"v"))
    assert printed == b"orders [3] at 7, 1000: k\xff (2) = v (1) from=JFK,gone=NULL 100 %\n"


@pytest.mark.parametrize("text", ["%q", "100 %", "%%%"])
def test_an_unknown_placeholder_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unknown placeholder"):
        RecordTemplate(text)


DATA = st.none() | st.binary() | st.text().map(str.encode)
NAMES = st.text(st.characters(exclude_categories=["Cs"]))
CUTS = st.integers(1, 9)


@given(
    st.lists(
        st.builds(
            StoredRecord,
            offset=st.integers(0, 2**63 - 1),
            timestamp=st.integers(0, 2**63 - 1),
            key=DATA,
            value=DATA,
            headers=st.lists(st.tuples(NAMES, DATA)).map(tuple),
        )
    ),
    st.sampled_from([b"\n", b"\0", b"\r\n", b"\n\n"]),
    CUTS,
)
def test_records_survive_a_round_trip_through_json(
    records: list[StoredRecord], delimiter: bytes, cut: int
) -> None:
    text = b"".join(json_line(7, record).encode() + delimiter for record in records)
    chunks = [text[start : start + cut] for start in range(0, len(text), cut)]
    found = list(LineReader(delimiter=delimiter, form="json").read(chunks))
    assert found == [
        LineRecord(number, record.key, record.value, record.headers, 7, record.timestamp)
        for number, record in enumerate(records, start=1)
    ]
