"""Arrow columns as JSON, Avro and Protobuf. Needs pyarrow."""
