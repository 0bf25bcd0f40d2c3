"""``kprod demo``: writes real flights through Spark into Kafka, reads them back, and compares."""

from __future__ import annotations
