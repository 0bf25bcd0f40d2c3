"""Kafka's messages: which there are, and how they are read and written."""
