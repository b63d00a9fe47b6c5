"""Judge answers and make the report: right answers, labels, explanations, and sentences."""
