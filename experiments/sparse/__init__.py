"""Equations from data: section 5.4 of the paper, and more."""
