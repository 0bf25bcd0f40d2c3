"""Record batches as bytes: read, written, compressed; of every format that Kafka has had."""
