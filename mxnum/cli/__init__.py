"""The command line: `main` is its entry point, `app` its list of commands.

Commands compute nothing themselves.
"""
