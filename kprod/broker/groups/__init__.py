"""Consumer groups by the classic protocol: membership, assignments, committed offsets."""
