"""The commands of ``mxnum lab``, and `command_reproduce` (``mxnum reproduce``)."""
