"""What makes ``format("kprod")`` known to Spark.

Spark imports every top-level module whose name begins with ``pyspark_`` when it looks for data
sources, and registers its ``DefaultSource`` (SPARK-45917). So this one is light: it imports
nothing but the class it must derive from, and kprod only when something is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from kprod.spark.data_source import BatchWriter, MicroBatchWriter
    from kprod.spark.topic_reader import TopicReader

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The format ``kprod``: columns and options are a superset of those of Spark's ``kafka`` sink.

    It reads topics as well, as batches.
    """

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return "kprod"

    def schema(self) -> str:
        """The columns of a topic that is read."""
        from kprod.spark.topic_reader import SCHEMA

        return SCHEMA

    def reader(self, schema: StructType) -> TopicReader:
        """For ``spark.read``. Raises ConfigError."""
        from kprod.spark.topic_reader import TopicReader, read_options

        return TopicReader(read_options(self.options))

    def streamReader(self, schema: StructType) -> Any:
        """Refused: Spark's own source reads streams. Raises ConfigError."""
        from kprod.errors import ConfigError
        from kprod.spark.topic_reader import STREAMING

        raise ConfigError(STREAMING)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """For a batch job. Raises ConfigError and SchemaError."""
        from kprod.spark.data_source import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> MicroBatchWriter:
        """For a streaming query; in output mode complete every row is written each time."""
        from kprod.spark.data_source import stream_writer

        return stream_writer(self.options, schema)
