"""The coordinator of transactions: who may write in which, and how each of them ends."""
