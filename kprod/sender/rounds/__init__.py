"""The kinds of requests a sender makes: when each is due, and the effect of its answer."""
