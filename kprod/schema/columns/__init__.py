"""Converts Arrow columns to JSON, Avro or Protobuf for ``send_arrow``. Needs pyarrow."""
