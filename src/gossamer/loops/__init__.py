"""Ledgers for loops that are not Gossamer's: of plain PyTorch, Opacus or scikit-learn, on a data owner's machine."""
