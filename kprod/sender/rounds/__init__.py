"""The kinds of requests a sender makes: when each is due, and what its answer changes."""
