"""Apache Kafka, from its own jars, as a process."""
