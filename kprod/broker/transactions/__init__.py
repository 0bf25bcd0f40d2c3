"""The coordinator of transactions: the producer of each, its partitions, and its end."""
