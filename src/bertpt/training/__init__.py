"""The pretrain stage: training loop, optimizer, checkpoints, processes."""
