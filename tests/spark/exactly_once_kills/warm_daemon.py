"""Spark's daemon of Python workers, with all modules imported to start replacements faster.

Spark runs it for ``spark.python.daemon.module``; a worker is a fork of it.
"""

from __future__ import annotations

import os

import pyarrow
import pyarrow.compute
from pyspark.daemon import manager

import kprod.admin.open_transactions
import kprod.producer
import kprod.spark
from tests.spark.exactly_once_kills.jobs import VARIABLE, plant

WARM = (pyarrow.compute, kprod.admin.open_transactions, kprod.producer, kprod.spark)

if __name__ == "__main__":
    plant(os.environ.get(VARIABLE))
    manager()
