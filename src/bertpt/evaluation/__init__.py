"""Evaluation: held-out losses, filled masks, text vectors."""
