"""From answers to the report: right answers, labels, explanations, and sentences."""
