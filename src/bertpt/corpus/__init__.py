"""INPUT to documents of sentences."""
