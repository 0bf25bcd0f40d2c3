"""The hand-over from callers to the sender: batches by partition, their memory and outcomes."""
