"""The DATA folder: read examples, mask them, batch them."""
