"""Specifications: standards' tables, conversions over the reals, exact rationals, stacks' sources."""
