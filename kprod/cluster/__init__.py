"""The cluster as the producer knows it: an immutable snapshot, and the cell that publishes it."""
