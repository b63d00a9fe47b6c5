"""Compute right answers, judge the answers of implementations, and explain mistakes in a report."""
