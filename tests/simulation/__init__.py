"""The real sender under a fake clock and a fake network, against a model of Kafka's brokers."""
