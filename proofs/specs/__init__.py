"""What is right: the standards' tables, conversions over the reals, exact rationals, the sources of stacks."""
