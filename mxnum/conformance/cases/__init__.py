"""The cases of a check: level 1 has every boundary, level 2 weighted random cases."""
