"""Writes each shard of a batch in a transaction, together with a marker that the shard is done."""
