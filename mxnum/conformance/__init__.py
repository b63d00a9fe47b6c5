"""Conformance: test vectors for any language, verdicts in words, and a table of what can be installed today."""
