"""A laboratory of faults: nodes on a simulated network that loses, delays, kills and restarts."""
