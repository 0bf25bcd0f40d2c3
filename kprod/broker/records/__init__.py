"""What the broker sends and stores: batches that it writes itself, and slices of log files."""
