"""Nodes over MQTT: transport, brokers, certificates."""
