"""The commands of ``mxnum lab``, and the command ``mxnum reproduce``."""
