"""Mistakes planted by hand, and a tool that shows which tests find them."""
