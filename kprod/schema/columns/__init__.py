"""Converts Arrow columns to columns for ``send_arrow``: JSON, Avro, Protobuf. Needs pyarrow."""
