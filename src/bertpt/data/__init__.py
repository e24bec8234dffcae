"""Text to examples: corpus, tokenizer, sentence pairs, masks, shards, batches."""
