"""Other parties as a party sees them."""
