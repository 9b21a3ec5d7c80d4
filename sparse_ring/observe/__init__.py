"""What a user sees of a run: counters, a progress line, the final table."""
