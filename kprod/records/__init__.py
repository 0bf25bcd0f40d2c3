"""An independent reader of stored record batches, in all of Kafka's formats."""
