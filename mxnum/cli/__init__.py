"""The command line: `main` is its entry point, `app` its list of commands; what a command computes lives elsewhere."""
