"""The command line: `main` has the entry point, and `app` lists the commands.

The modules of commands only read input and write output; other packages compute the results.
"""
