"""``kprod demo``: real flights through Spark into Kafka, and back, judged record by record."""

from __future__ import annotations
