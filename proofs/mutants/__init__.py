"""Planted mistakes, and how each is made, tried and judged."""
