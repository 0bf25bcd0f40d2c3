"""Every Spark type in every format: the whole matrix, which takes minutes"""

from __future__ import annotations

import pytest

from tests.support.programs import run_python


@pytest.mark.timeout(3600)
def test_every_type_is_equal_or_refused_in_every_format() -> None:
    print(run_python("-m", "tests.spark.type_matrix", seconds=3600).stdout)
