"""Producers for asyncio: kprod's own, and AIOKafkaProducer, compatible with aiokafka.

>>> from kprod.aio import Producer
"""

from __future__ import annotations

from kprod.aio.aiokafka_producer import AIOKafkaProducer
from kprod.aio.producer import Producer

__all__ = ["AIOKafkaProducer", "Producer"]
