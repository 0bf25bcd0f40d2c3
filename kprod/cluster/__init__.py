"""What is known about the cluster: an immutable snapshot, and the cell that publishes it."""
