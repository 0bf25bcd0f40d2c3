"""Whatever an application passes in: it is kept exactly, or an error of ours says why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kprod.config import OPTIONS, ProducerConfig
from kprod.config.foreign_options import IGNORED, unavailable
from kprod.errors import (
    ConfigError,
    InvalidRecordError,
    InvalidTopicError,
    KprodError,
    PartitionError,
    RecordTypeError,
)
from kprod.intake.arguments import check_partition, check_timestamp, check_topic, freeze_headers

data = st.binary(max_size=20)
buffers = st.one_of(
    data, data.map(bytearray), data.map(lambda content: memoryview(bytearray(content)))
)
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
    st.lists(st.integers()),
    st.dictionaries(st.text(), st.binary()),
    st.builds(object),
)
pairs = st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.none() | buffers)


@given(st.lists(pairs))
def test_headers_are_what_they_were_at_the_call(headers: list[tuple[str, Any]]) -> None:
    expected = tuple((name, None if value is None else bytes(value)) for name, value in headers)
    frozen = freeze_headers(headers)
    for _, value in headers:
        if isinstance(value, bytearray):
            value[:] = b"changed"
        elif isinstance(value, memoryview):
            value[:] = bytes(len(value))
    headers.clear()
    assert frozen == expected
    assert all(value is None or type(value) is bytes for _, value in frozen)


@given(anything | st.lists(anything) | st.lists(st.tuples(anything, anything)))
def test_headers_are_kept_or_refused(headers: Any) -> None:
    complaint = kept_or_complaint(
        lambda given: list(freeze_headers(given)) == pairs_of(given),
        headers,
        (RecordTypeError, InvalidRecordError),
    )
    assert complaint is None or complaint.startswith("headers")


def pairs_of(headers: Any) -> list[Any]:
    """Headers in one of the forms that ``send`` takes."""
    pairs = headers.items() if isinstance(headers, dict) else headers or ()
    return [
        (pair["key"], pair["value"]) if isinstance(pair, dict) else tuple(pair) for pair in pairs
    ]


@pytest.mark.parametrize(
    ("check", "error", "start"),
    [
        (check_topic, InvalidTopicError, "topic: expected"),
        (check_partition, PartitionError, "partition: expected"),
        (check_timestamp, InvalidRecordError, "timestamp_ms: expected"),
    ],
)
@given(anything)
def test_an_argument_is_kept_or_refused(
    check: Callable[[Any], Any], error: type[KprodError], start: str, argument: Any
) -> None:
    complaint = kept_or_complaint(
        lambda given: check(given) == given, argument, (error, RecordTypeError)
    )
    if complaint is not None:
        assert complaint.startswith(start)
    elif check is not check_topic:
        assert argument is None or type(argument) is int


@example({"partitioner_cb": None})
@given(st.dictionaries(st.sampled_from(sorted(OPTIONS)) | st.text(), anything, max_size=6))
def test_options_are_accepted_or_complained_about(options: dict[str, Any]) -> None:
    complaint = kept_or_complaint(
        lambda given: repr(ProducerConfig.from_options(given)) != "", options, (ConfigError,)
    )
    # What only other clients have may be ignored; and None there means that it is not asked for.
    elsewhere = {name for name in options if name in IGNORED or unavailable(name) is not None}
    assert complaint is not None or set(options) <= OPTIONS.keys() | elsewhere


def kept_or_complaint(
    keeps: Callable[[Any], bool], given: Any, errors: tuple[type[KprodError], ...]
) -> str | None:
    """The text of the error, None when what was given is kept as it is."""
    try:
        kept = keeps(given)
    except errors as error:
        return str(error)
    assert kept
    return None
