"""The coordinator of transactions: their producers, their partitions, and how they end."""
