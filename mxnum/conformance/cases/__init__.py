"""The cases of a check. Level 1: every boundary and its neighbours. Level 2: weighted random cases."""
