"""Ways to write a DataFrame to Kafka, side by side: kprod, Spark's own sink, confluent-kafka."""
