"""Planted mistakes, and how one is made, tried and judged."""
