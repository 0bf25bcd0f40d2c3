"""A long-running test for growth of memory, descriptors, threads and latency."""
