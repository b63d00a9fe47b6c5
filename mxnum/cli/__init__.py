"""The command line: `main` is its entry point, `app` its list of commands.

Commands read and write; other modules of the package compute.
"""
