"""The background thread: it sends ready batches, and settles them when brokers answer."""
