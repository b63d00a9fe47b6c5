"""Machines that run kernels on symbolic inputs, as Python functions or as compiled IR or PTX."""
