"""Commands for federations of organisations: founding them, and running their parties."""
