"""Pretrain BERT from scratch: data builders, the model, its losses, the training loop."""

__version__ = "0.1.0"
