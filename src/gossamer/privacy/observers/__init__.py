"""What observers of a network learn, who see less than everybody."""
