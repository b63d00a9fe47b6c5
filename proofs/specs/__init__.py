"""Specifications: the standards' tables, conversions over the reals, rationals, stacks' sources."""
