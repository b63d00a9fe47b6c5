"""What people read: files that appear whole or not at all, tables of text, colours of figures."""
