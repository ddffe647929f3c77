"""Networks of PyTorch: their gradients example by example, clipped and summed."""
