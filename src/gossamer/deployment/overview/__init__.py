"""A federation as a whole, as those see it who may watch it."""
