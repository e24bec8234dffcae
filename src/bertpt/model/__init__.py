"""BERT from scratch, its losses, and the folders it is kept in."""
