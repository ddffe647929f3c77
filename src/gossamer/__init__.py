"""Asynchronous, decentralised, differentially private federated learning."""
