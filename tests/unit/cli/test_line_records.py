"""What a line of text is as a record."""

from __future__ import annotations

from io import BytesIO

from kprod.cli.record_lines import BadLineError, LineReader, LineRecord


def read(text: bytes, key_separator: bytes | None = None) -> list[LineRecord | BadLineError]:
    return list(LineReader(key_separator=key_separator).read(BytesIO(text)))


def test_a_line_is_a_value_without_its_end() -> None:
    assert read(b"a\nb\r\n\nno end") == [
        LineRecord(1, None, b"a"),
        LineRecord(2, None, b"b"),
        LineRecord(3, None, b""),
        LineRecord(4, None, b"no end"),
    ]


def test_the_key_stands_before_the_first_separator() -> None:
    assert read(b"k::v::w\n::v\nk::\n", b"::") == [
        LineRecord(1, b"k", b"v::w"),
        LineRecord(2, b"", b"v"),
        LineRecord(3, b"k", b""),
    ]


def test_a_line_without_separator_is_an_error_of_that_line() -> None:
    first, second = read(b"v\nk:v\n", b":")
    assert isinstance(first, BadLineError)
    assert str(first) == "line 1: no key: ':' is not in the line"
    assert second == LineRecord(2, b"k", b"v")


def test_a_delimiter_may_lie_across_two_reads() -> None:
    text = b"||".join([b"x" * 65_535, b"", b"y" * 70_000]) + b"||\n"
    found = list(LineReader(delimiter=b"||").read(BytesIO(text)))
    assert [one.value for one in found if isinstance(one, LineRecord)] == [
        b"x" * 65_535,
        b"",
        b"y" * 70_000,
    ]
