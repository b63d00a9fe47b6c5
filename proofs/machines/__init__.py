"""Machines that run functions symbolically: on bit-vectors, ratios and floats, or as IR and PTX."""
