"""What ``kprod consume --format json`` prints is what ``kprod produce --format json`` sends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kprod.cli.record_lines import LineReader, LineRecord, json_line
from kprod.records.record_batch import StoredRecord

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
def test_records_survive_the_way_through_json(
    records: list[StoredRecord], delimiter: bytes, cut: int
) -> None:
    text = b"".join(json_line(7, record).encode() + delimiter for record in records)
    chunks = [text[start : start + cut] for start in range(0, len(text), cut)]
    found = list(LineReader(delimiter=delimiter, form="json").read(chunks))
    assert found == [
        LineRecord(number, record.key, record.value, record.headers, 7, record.timestamp)
        for number, record in enumerate(records, start=1)
    ]
