"""The commands of ``mxnum lab``, and `command_reproduce`, which users call as ``mxnum reproduce``."""
