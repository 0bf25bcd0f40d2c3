"""Clients: where they connect, how they log in, and how their requests come and go."""
