"""Every Spark type in every format. Takes minutes."""

from __future__ import annotations

import pytest

from tests.support.programs import run_python


@pytest.mark.timeout(3600)
def test_every_type_equals_sparks_output_or_is_refused() -> None:
    print(run_python("-m", "tests.spark.type_matrix", seconds=3600).stdout)
