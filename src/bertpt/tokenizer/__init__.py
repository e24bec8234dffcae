"""The WordPiece tokenizer, and learning its vocabulary."""
