"""A slow and simple cluster: what a producer may rely on, and nothing else."""
