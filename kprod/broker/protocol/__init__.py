"""Kafka's messages: their APIs and versions, their reader and their writer."""
