"""A template prints what its signs say, and bytes as they are."""

from __future__ import annotations

import pytest

from kprod.cli.record_template import RecordTemplate
from kprod.records.record_batch import StoredRecord


def stored(key: bytes | None, value: bytes | None) -> StoredRecord:
    headers = (("from", b"JFK"), ("gone", None))
    return StoredRecord(offset=7, timestamp=1000, key=key, value=value, headers=headers)


def test_every_sign_stands_for_its_part() -> None:
    text = "%t [%p] at %o, %T: %k (%K) = %s (%S) %h 100 %%\n"
    printed = RecordTemplate(text)("orders", 3, stored(b"k\xff", b"v"))
    assert printed == b"orders [3] at 7, 1000: k\xff (2) = v (1) from=JFK,gone=NULL 100 %\n"


@pytest.mark.parametrize("text", ["%q", "100 %", "%%%"])
def test_a_sign_that_stands_for_nothing_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="unknown placeholder"):
        RecordTemplate(text)
