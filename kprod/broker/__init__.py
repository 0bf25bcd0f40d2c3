"""The embedded broker: a single node that speaks the Kafka protocol over a real log on disk."""
