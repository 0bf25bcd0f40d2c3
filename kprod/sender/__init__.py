"""The background thread: takes ready batches, sends them, and settles what comes back."""
