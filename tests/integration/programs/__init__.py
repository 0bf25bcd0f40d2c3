"""Programs as users of the three Python clients write them; ``test_programs_of_users`` runs them.

Each gets the brokers as its first argument, and prints what it noticed as JSON on its last line.
"""
