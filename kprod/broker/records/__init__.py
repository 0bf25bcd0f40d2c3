"""What the broker writes: batches of its own, what compaction leaves, slices of files."""
