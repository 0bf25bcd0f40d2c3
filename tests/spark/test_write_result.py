"""The result of a write and its progress bar."""

from __future__ import annotations

import io
import json
from dataclasses import replace

from kprod.spark import OffsetRange, PartitionReport
from kprod.spark.spark_job import bar, progress_line
from kprod.spark.write_result import MOST_REASONS, add_results, write_result


def report(task: int, attempt: int, *offsets: OffsetRange, skipped: int = 0) -> PartitionReport:
    return PartitionReport(
        task=task,
        attempt=attempt,
        records=sum(found.records for found in offsets),
        bytes=10,
        retries=0,
        seconds=1.0,
        host="h",
        pid=1,
        offsets=list(offsets),
        skipped=skipped,
        reasons=["too large"] * skipped,
    )


def span(partition: int, first: int, last: int, records: int) -> OffsetRange:
    return OffsetRange(topic="<t>", partition=partition, first=first, last=last, records=records)


def test_offset_ranges_of_the_same_partition_are_joined() -> None:
    shards = [
        report(1, 2, span(0, 5, 9, 3), span(1, -1, -1, 4)),
        report(0, 0, span(0, 2, 6, 2), skipped=1),
    ]
    result = write_result(shards, seconds=2.0)
    assert (result.records, result.bytes, result.skipped, result.attempts) == (9, 20, 1, 4)
    assert result.offsets == {"<t>": {0: span(0, 2, 9, 5), 1: span(1, -1, -1, 4)}}
    assert [shard.task for shard in result.shards] == [0, 1]
    assert result.reasons == {"too large": 1}
    assert "1 skipped in 2.0 s, 4 records/s, 2 shards in 4 attempts" in str(result)
    assert "<td>&lt;t&gt;</td>" in result._repr_html_()
    assert json.loads(json.dumps(result.as_dict()))["offsets"]["<t>"]["0"]["last"] == 9
    lone = write_result([report(0, 1, span(0, 5, 5, 1))], seconds=2.0)
    assert str(lone).startswith("1 record (")
    twice = add_results([result, result])
    assert (twice.records, twice.seconds, twice.reasons) == (18, 4.0, {"too large": 2})
    assert twice.offsets["<t>"][0] == span(0, 2, 9, 10)


def test_a_total_keeps_the_most_frequent_reasons() -> None:
    total = add_results([])
    for number in range(3 * MOST_REASONS):
        reasons = {f"row {number} is bad": 1, "no topic": 2}
        total = add_results([total, replace(write_result([], 1.0), reasons=reasons)])
    assert len(total.reasons) == MOST_REASONS
    assert total.reasons["no topic"] == 6 * MOST_REASONS


def test_the_text_of_a_result_has_its_counts() -> None:
    """Also in a summary without the single shards."""
    whole = write_result([report(0, 0, span(0, 5, 9, 5)), report(1, 0)], seconds=1.0)
    assert str(whole).endswith("5 records/s, 2 shards")
    assert str(replace(whole, shards=())).endswith("5 records/s")
    once = replace(whole, committed=1, already_there=2, rewritten=1, shards=())
    assert str(once).endswith("of 3 shards 1 committed (1 of them rewritten), 2 already there")


def test_an_empty_job_has_an_empty_result() -> None:
    empty = write_result([], seconds=0.0)
    assert (empty.records, empty.offsets, empty.attempts) == (0, {}, 0)
    assert add_results([]) == empty


def test_the_progress_bar_shows_the_share_of_finished_tasks() -> None:
    half = "=" * 15 + ">" + " " * 14
    for done, tasks, drawn in ((0, 0, ">".ljust(30)), (1, 2, half), (4, 4, "=" * 30)):
        assert bar("kprod: t", done, tasks, 3.4) == f"kprod: t [{drawn}] {done}/{tasks} tasks, 3 s"


def test_no_progress_bar_is_drawn_without_a_terminal() -> None:
    out = io.StringIO()
    with progress_line("t", lambda: (1, 2), out):
        pass
    assert not out.getvalue()
