"""Federated learning with buffered asynchronous aggregation (FedBuff), private for whole clients."""
