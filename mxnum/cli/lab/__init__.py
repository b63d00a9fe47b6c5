"""``mxnum lab``: the commands of research, and `command_reproduce`, which is called ``mxnum reproduce``."""
