"""Gradients: when they are reduced, and in which form. Knows no framework."""
