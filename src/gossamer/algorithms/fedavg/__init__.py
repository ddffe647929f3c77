"""Federated averaging (FedAvg), private for whole clients."""
