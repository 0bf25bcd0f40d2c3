"""Seeded kills of processes during exactly-once delivery from Spark."""
