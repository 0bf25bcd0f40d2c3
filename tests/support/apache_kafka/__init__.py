"""Apache Kafka itself, from its own jars, as a process that tests start, kill and start again."""
