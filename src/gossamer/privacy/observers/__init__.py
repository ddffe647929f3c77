"""Knowledge of observers of a network, who see less than everybody."""
