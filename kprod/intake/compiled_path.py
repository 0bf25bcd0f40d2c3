"""What must hold for records to take the compiled path of ``send``."""

from __future__ import annotations

from kprod.config import ProducerConfig
from kprod.intake.partitioner import DefaultPartitioner, Partitioner


def compiled_partitioner(
    config: ProducerConfig, partitioner: Partitioner
) -> DefaultPartitioner | None:
    """The partitioner if the compiled ``send`` can do without asking it, else None.

    Nothing of the application's may have to see each record on its way in.
    """
    if config.interceptors or config.key_serializer or config.value_serializer:
        return None
    if isinstance(partitioner, DefaultPartitioner) and partitioner.hashes_by_murmur2:
        return partitioner
    return None
