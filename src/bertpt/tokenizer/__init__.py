"""The WordPiece tokenizer: load it, learn it."""
