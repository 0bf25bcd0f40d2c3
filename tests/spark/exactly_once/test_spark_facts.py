"""Spark's behaviour with tasks, batches and checkpoints that exactly-once delivery relies on."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kprod.errors import BrokerError, ConfigError, ErrorCode
from kprod.spark import RowsChanged, WriteFailed, sharded, write
from kprod.spark.data_source import batch_writer, query_of, stream_writer
from kprod.spark.delivery import JobName, Scope, Terms
from kprod.spark.job_tasks import TaskOutcome, is_fatal
from kprod.spark.python_worker import TaskIdentity
from kprod.spark.shard_rows import SHARD_COLUMN, Layout
from tests.spark.exactly_once.test_surfaces import ONCE, PARTITIONS, ROWS, assert_once_each, frame
from tests.spark.lines import Lines, pour
from tests.support.committed_records import committed

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

TASK = TaskIdentity(application="app", stage=3, partition=1, attempt=0)
IN_STREAM = replace(TASK, query="q", batch=7)
SHARDED = StructType([StructField("value", StringType()), StructField(SHARD_COLUMN, LongType())])
OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "kafka.max.block.ms": "100",
    "topic": "t",
    "delivery": "exactly_once",
}


def once(folder: Path, name: str) -> bool:
    """True for the first caller of all processes."""
    try:
        os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def loses_an_executor(folder: Path) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Kill the executor in the middle of a task, so that its shuffle files are lost."""

    def kills(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if once(folder, "lost"):
                os.kill(parent_of(os.getppid()), signal.SIGKILL)

    return kills


def test_rows_are_written_once_after_a_worker_was_killed(
    cluster: SparkSession, kafka: str, tmp_path: Path
) -> None:
    def dies_once(value: str) -> bytes:
        if value == "row 250" and once(tmp_path, "died"):
            os.kill(os.getpid(), signal.SIGKILL)
        return value.encode()

    given = {"bootstrap_servers": kafka, "value_serializer": dies_once, **ONCE}
    result = write(frame(cluster), "killed-worker", **given)
    assert (tmp_path / "died").exists()
    assert_once_each(kafka, "killed-worker")
    assert result.attempts > 4
    assert result.rewritten >= 1
    assert "of them rewritten" in str(result)


def test_rows_are_written_once_after_a_shuffle_was_lost(
    cluster: SparkSession, kafka: str, tmp_path: Path
) -> None:
    shuffled = frame(cluster).repartition(6, "key")
    shuffled = shuffled.mapInArrow(loses_an_executor(tmp_path), "key string, value string")
    result = write(shuffled, "lost-shuffle", bootstrap_servers=kafka, **ONCE)
    assert (tmp_path / "lost").exists()
    assert_once_each(kafka, "lost-shuffle")
    assert result.records == ROWS


def test_adaptive_execution_does_not_change_the_shards(cluster: SparkSession, kafka: str) -> None:
    def run() -> DataFrame:
        return frame(cluster).groupBy("key").agg({"value": "max"}).toDF("key", "value")

    given = {"bootstrap_servers": kafka, "job_id": "adaptive", "shards": 3, **ONCE}
    before = cluster.conf.get("spark.sql.adaptive.enabled")
    try:
        for enabled in ("true", "false"):
            cluster.conf.set("spark.sql.adaptive.enabled", enabled)
            result = write(run(), "adaptive", **given)
    finally:
        cluster.conf.set("spark.sql.adaptive.enabled", before or "true")
    assert result.already_there == 3
    assert_once_each(kafka, "adaptive")


def test_a_copied_checkpoint_never_drops_rows_without_an_error(
    cluster: SparkSession, kafka: str, tmp_path: Path
) -> None:
    topic = "copied-checkpoint"
    given = {"kafka.bootstrap.servers": kafka, "topic": topic, "delivery": "exactly_once"}

    def run(lines: Lines, checkpoint: Path, **more: str) -> None:
        pour(sharded(lines.stream(), 2), {**given, **more}, checkpoint)

    lines = Lines(cluster, tmp_path)
    lines.add(100)
    run(lines, tmp_path / "first")
    for name in ("other-rows", "behind"):
        shutil.copytree(tmp_path / "first", tmp_path / name)
    lines.add(50)
    run(lines, tmp_path / "first")
    mine = (lines.folder / "000100.txt").read_text()
    (lines.folder / "000100.txt").write_text("of the copy\n" * 30)
    with pytest.raises(StreamingQueryException, match="Nothing was written or dropped"):
        run(lines, tmp_path / "other-rows")
    (lines.folder / "000100.txt").write_text(mine)
    lines.add(60)
    run(lines, tmp_path / "first")
    with pytest.raises(StreamingQueryException, match="batch 2 was already written"):
        run(lines, tmp_path / "behind")
    assert_once_each(kafka, topic, 210)
    run(lines, tmp_path / "behind", jobId="copy")
    assert len(committed(kafka, topic, PARTITIONS)) == 320


def test_commit_may_be_repeated_and_followed_by_abort() -> None:
    writer, batch = stream_writer(OPTIONS, SHARDED), batch_writer(OPTIONS, SHARDED, False)
    messages = [TaskOutcome(task=0), None]
    for _ in range(2):
        writer.commit(messages, 7)
        writer.abort(messages, 7)
        batch.commit(messages)
        batch.abort(messages)
    lost = [TaskOutcome(task=1, failure=RowsChanged("other rows"))]
    for _ in range(2):
        with pytest.raises(WriteFailed, match="other rows"):
            writer.commit(lost, 7)
    assert is_fatal(RowsChanged("other rows")), "a retry cannot help"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ],
)
def test_a_refused_marker_is_not_retried(code: ErrorCode) -> None:
    assert is_fatal(BrokerError(code, "group kprod.job.0"))
    assert not is_fatal(BrokerError(ErrorCode.NOT_COORDINATOR, "group kprod.job.0"))


@pytest.mark.parametrize("scope", Scope)
def test_only_attempts_of_one_call_have_the_same_run(scope: Scope) -> None:
    runs = []
    for _ in range(2):
        call = Terms(topic="t", job_id="mine", scope=scope, query="q", batch=0)
        shipped: Terms = pickle.loads(pickle.dumps(call))
        attempts = [replace(TASK, attempt=number) for number in range(2)]
        runs.append({shipped.shard(attempt, Layout(1, 2)).run for attempt in attempts})
    assert [len(run) for run in runs] == [1, 1]
    assert runs[0].isdisjoint(runs[1])


def test_two_actions_with_one_writer_are_two_runs() -> None:
    """Spark ships the callable once, and runs a stage for each action."""
    shipped: Terms = pickle.loads(pickle.dumps(Terms(topic="t", job_id="mine")))
    stages = (replace(TASK, stage=stage) for stage in (3, 4))
    assert len({shipped.shard(task, Layout(1, 2)).run for task in stages}) == 2


def test_an_abort_with_an_unknown_query_does_not_affect_other_jobs() -> None:
    unknown = Terms(topic="t", scope=Scope.QUERY, job_id="mine", batch=7)
    assert unknown.shard_of_driver() is None
    without_query = replace(unknown, query="")  # with Spark Connect
    aborted = without_query.shard_of_driver()
    assert aborted is not None
    assert aborted.job_name == without_query.shard(IN_STREAM, Layout(1, 2)).job_name
    with pytest.raises(ConfigError, match="need a job_id here"):
        replace(without_query, job_id=None).job_name(TASK)


def test_job_names_depend_on_job_id_query_and_scope() -> None:
    given = Terms(topic="t", job_id="mine")
    assert given.job_name(TASK) == JobName("mine", 0, lasting=True)
    assert given.job_name(IN_STREAM) == JobName("mine.q", 7, lasting=True)
    fresh = Terms(topic="t", fresh="f")
    assert fresh.job_name(TASK) == JobName("f.3", 0, lasting=False)
    with pytest.raises(ConfigError, match="need a job_id here"):
        fresh.job_name(IN_STREAM)
    call = replace(fresh, scope=Scope.CALL)
    assert call.job_name(TASK) == JobName("f", 0, lasting=False)
    with pytest.raises(ConfigError, match="need a name for a micro-batch"):
        call.job_name(IN_STREAM)
    assert replace(call, job_id="mine").job_name(IN_STREAM) == JobName("mine.q", 7, lasting=True)
    batch = replace(fresh, scope=Scope.QUERY, batch=4)
    with pytest.raises(ConfigError, match="need a job_id here"):
        batch.job_name(TASK)
    assert replace(batch, query="q").job_name(TASK) == JobName("q", 4, lasting=True)
    assert replace(batch, job_id="mine").job_name(TASK) == JobName("mine", 4, lasting=True)
    with pytest.raises(ConfigError, match="does not report which query and batch"):
        replace(fresh, scope=Scope.QUERY).job_name(TASK)


def test_the_query_id_is_read_from_the_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"feb7ab5c"}\n')
    for path in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        assert query_of(path) == "feb7ab5c"
    (tmp_path / "other").mkdir()
    for missing in (None, str(tmp_path / "other"), "nowhere://host/checkpoint"):
        assert query_of(missing) is None
    (tmp_path / "metadata").write_text("{}")
    assert query_of(str(tmp_path)) is None
