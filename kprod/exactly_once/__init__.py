"""One transaction for each shard of a batch; it includes a marker that the shard is done."""
