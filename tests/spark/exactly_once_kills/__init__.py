"""Seeded kills of everything that writes exactly once from Spark."""
