"""``kprod perf``: how fast this machine delivers records to a cluster, and at what cost."""
