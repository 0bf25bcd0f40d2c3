"""``kprod perf``: measures how fast this machine delivers records, and at what cost."""
