"""BERT, its losses and initialisation, and its Hugging Face folders."""
