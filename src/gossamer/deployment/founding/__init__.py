"""Founding a federation: keys, invitations, the layout of its folders, renewed papers."""
