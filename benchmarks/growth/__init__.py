"""What batches that go on filling gain, and what they do to memory."""
