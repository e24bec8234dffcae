"""The build-data stage: documents to a DATA folder."""
