"""Asynchronous federated optimization (FedAsync), private for whole clients."""
