"""Arrow columns as those that ``send_arrow`` takes: JSON, Avro, Protobuf. Needs pyarrow."""
