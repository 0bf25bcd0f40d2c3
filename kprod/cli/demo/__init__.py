"""``kprod demo``: real flights through Spark into Kafka and back, compared record by record."""

from __future__ import annotations
