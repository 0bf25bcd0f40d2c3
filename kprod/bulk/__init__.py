"""Calls that send many records: the compiled loop, its inputs, and one handle for all results."""
