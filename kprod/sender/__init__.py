"""The background thread: takes ready batches, sends them, and settles them by the answers."""
