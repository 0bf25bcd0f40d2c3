"""Minutes of one workload on Apache Kafka: rates that last, requests, memory."""
