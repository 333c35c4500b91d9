"""What an operator sees of a worker or a drain: logs, progress, status."""
