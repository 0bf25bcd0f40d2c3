"""Every file of tests that shares something expensive is named where workers are told of it."""

from __future__ import annotations

from tests.architecture.sources import ROOT
from tests.support.worker_shares import ALONE, TOGETHER, share


def test_the_files_that_are_named_exist() -> None:
    assert [name for name in (*TOGETHER, *ALONE) if not (ROOT / name).is_file()] == []


def test_one_worker_has_all_tests_of_the_spark_cluster() -> None:
    using = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests" / "spark").rglob("test_*.py")
        if "cluster: SparkSession" in path.read_text()
    }
    assert {name for name in TOGETHER if share(name) == "spark_cluster"} == using
