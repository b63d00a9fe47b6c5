"""Specifications: tables of standards, conversions over the reals, rationals, sources of stacks."""
