"""The command line. Its entry point is in `main`, the list of commands in `app`.

The modules of commands read input and write output. Other packages compute.
"""
