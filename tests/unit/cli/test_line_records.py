"""What a line of text is as a record."""

from __future__ import annotations

from kprod.cli.produce_command import LineRecord, NoKeyError, read_lines


def test_a_line_is_a_value_without_its_end() -> None:
    lines = [b"a\n", b"b\r\n", b"\n", b"no end"]
    assert list(read_lines(lines, None)) == [
        LineRecord(1, None, b"a"),
        LineRecord(2, None, b"b"),
        LineRecord(3, None, b""),
        LineRecord(4, None, b"no end"),
    ]


def test_the_key_stands_before_the_first_separator() -> None:
    assert list(read_lines([b"k::v::w\n", b"::v\n", b"k::\n"], b"::")) == [
        LineRecord(1, b"k", b"v::w"),
        LineRecord(2, b"", b"v"),
        LineRecord(3, b"k", b""),
    ]


def test_a_line_without_separator_is_an_error_of_that_line() -> None:
    first, second = read_lines([b"v\n", b"k:v\n"], b":")
    assert isinstance(first, NoKeyError)
    assert str(first) == "line 1: no key: ':' is not in the line"
    assert second == LineRecord(2, b"k", b"v")
