"""Studies: arms that are compared on common seeds, how they are run, stored and judged."""
