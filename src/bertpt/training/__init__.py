"""The pretraining loop and what it is made of."""
