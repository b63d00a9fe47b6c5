"""Mistakes that are planted in the code, and a tool that shows which tests find them."""
