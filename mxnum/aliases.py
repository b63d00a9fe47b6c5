"""What people call formats: in capitals, with other separators, or by a name that leaves something out."""

from __future__ import annotations

from collections.abc import Sequence

from mxnum import errors

#: Names that say less than ours, without separators, and what they may mean.
_SHORT = {
    "mxfp8": ("mxfp8_e4m3", "mxfp8_e5m2"),
    "mxfp6": ("mxfp6_e3m2", "mxfp6_e2m3"),
    "mxfp4": ("mxfp4_e2m1",),  # the only one of that width in the standard
}


def meant(argument: str, name: object, known: Sequence[str]) -> str:
    """The known name that is meant; an error that says which are known, and which may be meant."""
    found = find(argument, name, known) if isinstance(name, str) else None
    return found if found is not None else errors.choose(argument, name, known)


def find(argument: str, name: str, known: Sequence[str]) -> str | None:
    """The same; None for a name that nobody knows."""
    if name in known:
        return name
    plain = _plain(name)
    fitting = [each for each in _SHORT.get(plain, ()) if each in known]
    if len(fitting) > 1:
        raise errors.ambiguous(argument, name, fitting)
    fitting += [each for each in known if _plain(each) == plain]
    return fitting[0] if fitting else None


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
