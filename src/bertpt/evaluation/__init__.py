"""What a trained model is worth: held-out losses, accuracies, filled masks."""
