"""Hands records from callers to the sender: batches by partition, their memory and results."""
