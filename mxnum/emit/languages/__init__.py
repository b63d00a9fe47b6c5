"""A printer for each language: it turns a `Model` into the text of one file."""
