"""Output for readers: files written whole or not at all, tables of text, colours of figures."""
