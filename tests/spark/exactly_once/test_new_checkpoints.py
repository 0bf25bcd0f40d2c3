"""Spark Connect does not say which query it is: a new checkpoint under an old ``job_id``."""

from __future__ import annotations

from pathlib import Path

import pytest

from kprod.admin import open_transactions
from kprod.broker import EmbeddedBroker
from tests.spark.driver_process import SETTINGS, finished, job
from tests.spark.own_environment import connect_python
from tests.support.committed_records import committed

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

PROGRAM = """
from kprod.spark import foreach_batch

folder = Path(given["folder"])
writes = foreach_batch(
    "lines", job_id="nightly", shards=2, bootstrap_servers=servers, delivery="exactly_once"
)
for name, text in given["batches"].items():
    (folder / name).mkdir()
    (folder / name / "1.txt").write_text(text)
    query = (
        spark.readStream.text(str(folder / name)).writeStream.foreachBatch(writes)
        .option("checkpointLocation", str(folder / f"checkpoint of {name}"))
        .trigger(availableNow=True).start()
    )
    try:
        query.awaitTermination()
        told[name] = "ended"
    except Exception as error:
        told[name] = str(error)
print(json.dumps(told))
"""


def test_rows_of_another_query_are_refused(tmp_path: Path) -> None:
    """They are as many and as large as those that were written. The same rows are there already."""
    batches = {"first": "a\nb\nc\nd\n", "other": "e\nf\ng\nh\n", "same": "a\nb\nc\nd\n"}
    with EmbeddedBroker(topics={"lines": 2}) as broker:
        servers = broker.bootstrap_servers
        given = {"master": "local[2,4]", "connect": True, "settings": SETTINGS, "rows": 0}
        given |= {"servers": servers, "folder": str(tmp_path), "batches": batches}
        told = finished(job(PROGRAM, given, connect_python()))
        assert "RowsChanged" in told.pop("other")
        assert told == {"first": "ended", "same": "ended"}
        assert sorted(committed(servers, "lines", 2)) == [b"a", b"b", b"c", b"d"]
        assert open_transactions(servers) == []
