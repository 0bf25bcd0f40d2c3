"""Mutation testing of kprod."""
