"""Partitions on disk in Kafka's own layout: segments, indexes, checkpoints, and recovery."""
