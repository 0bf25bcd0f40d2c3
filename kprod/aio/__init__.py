"""The asyncio faces: a Producer of kprod's own, and AIOKafkaProducer in aiokafka's shape

>>> from kprod.aio import Producer
"""

from __future__ import annotations

from kprod.aio.aiokafka_producer import AIOKafkaProducer
from kprod.aio.producer import Producer

__all__ = ["AIOKafkaProducer", "Producer"]
