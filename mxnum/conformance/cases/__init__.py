"""Cases for checks: every boundary (level 1), or random cases, many near boundaries (level 2)."""
