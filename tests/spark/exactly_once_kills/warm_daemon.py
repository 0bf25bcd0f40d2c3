"""Spark's daemon of Python workers, with everything imported that a killed one needs anew.

Spark runs it for ``spark.python.daemon.module``; a worker is a fork of it.
"""

from __future__ import annotations

import pyarrow
import pyarrow.compute
from pyspark.daemon import manager

import kprod.admin.open_transactions
import kprod.producer
import kprod.spark

WARM = (pyarrow.compute, kprod.admin.open_transactions, kprod.producer, kprod.spark)

if __name__ == "__main__":
    manager()
