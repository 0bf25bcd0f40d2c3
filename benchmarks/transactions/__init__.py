"""Transactions of kprod, confluent-kafka and the Java client on one Apache Kafka broker."""
