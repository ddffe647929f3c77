"""Linear models: their examples, losses, gradients and local steps."""
