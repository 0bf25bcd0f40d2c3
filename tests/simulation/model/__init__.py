"""A simple model of a cluster: only what a producer may rely on."""
