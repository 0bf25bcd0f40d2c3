"""The transactional calls for applications, and the consumer offsets that they commit."""
