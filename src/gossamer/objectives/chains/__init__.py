"""Chains of layers, compiled whole: an example's forward and backward pass, norm and sum in one kernel."""
