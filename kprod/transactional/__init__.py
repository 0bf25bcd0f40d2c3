"""The transactional calls of a producer, and the consumer offsets that they commit."""
