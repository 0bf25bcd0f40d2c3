"""The producer's metadata: an immutable snapshot, and the object that publishes it."""
