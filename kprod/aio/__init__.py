"""Producers for asyncio: kprod's own ``Producer``, and aiokafka's ``AIOKafkaProducer``.

>>> from kprod.aio import Producer
"""

from __future__ import annotations

from kprod.aio.aiokafka_producer import AIOKafkaProducer
from kprod.aio.producer import Producer

__all__ = ["AIOKafkaProducer", "Producer"]
