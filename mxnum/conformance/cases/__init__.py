"""Cases for checks: cases at every boundary (level 1), or random cases (level 2).

Many random cases lie near boundaries.
"""
