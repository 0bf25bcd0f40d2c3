"""A transaction for each shard of a batch, and inside it a marker that says the shard is done."""
