"""The cases of a check: level 1 has every boundary, level 2 random cases, many near boundaries."""
