"""The definition in code: integer functions that every machine runs alike. `word` has the rules they follow."""
