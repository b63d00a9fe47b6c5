"""Emulate a model in low precision, and restore it."""

from __future__ import annotations

import inspect
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any

from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy
from torch.nn.utils.parametrize import ParametrizationList

from mxnum import errors
from mxnum.recipe import Operand, Recipe
from mxnum.torch.coverage import Coverage, covered, patterns
from mxnum.torch.functions import How
from mxnum.torch.modules import Emulated, Site, enter, kind_of, leave, sites_of, why_not
from mxnum.torch.randomness import STEPS, Steps, module_seed, position_of, seed_of, worker_of

#: A recipe, the name of a recipe, a mapping from patterns of module names to recipes, or a function
#: of name and module that returns a recipe. In a mapping, the first pattern that matches a module's
#: name determines the recipe. A module whose recipe is None is not emulated.
Recipes = Recipe | str | Mapping[str, Any] | Callable[[str, nn.Module], Any]
#: Patterns of module names with shell wildcards, or a function of name and module that returns True
#: for the chosen modules.
Choice = str | Iterable[str] | Callable[[str, nn.Module], bool]
_ATTRIBUTE = "_mx_emulation"
#: Why the attention of a module is not emulated.
_UNNAMED = "calls scaled_dot_product_attention, which is emulated only if attention= names the module"
#: Why a submodule of a MultiheadAttention is not emulated: the MultiheadAttention reads the
#: parameters of the submodule, but never calls the submodule.
_PART = "is inside a MultiheadAttention that is left out"
#: Matches names of parameters that are looked up or added but not multiplied: positions,
#: embeddings, class tokens.
_TABLE = re.compile("pos|emb|token|bias")
#: torch's encoder classes, each with the name of the attribute that enables its fast path.
_FAST_PATHS = (
    (nn.TransformerEncoderLayer, "activation_relu_or_gelu"),
    (nn.TransformerEncoder, "use_nested_tensor"),
)


class Emulation:
    """The emulated modules of a model, and the seed and step that determine the random bits."""

    def __init__(self, seed: int, worker: int):
        self.seed = seed
        self._model: Any = None
        self._steps = Steps(worker)
        #: The emulated modules by name.
        self.modules: dict[str, Any] = {}
        #: The modules that `filter` and `recipe` select but that are not emulated, by name, each
        #: with the reason. Modules with neither parameters nor attention are not listed.
        self.left_alone: dict[str, str] = {}
        #: The arguments `accumulate` and `gradient` that `emulate` was called with.
        self._sums: tuple[str | None, str] = (None, "straight")
        self._hooks: list[int] = []
        self._fast_paths: list[tuple[nn.Module, str, Any]] = []

    @property
    def step(self) -> int:
        """The number of forward passes in training so far, including the current one."""
        return int(self._steps.position[0])

    def advance_step(self) -> None:
        """Begin a step.

        Call this method before each step if training calls parts of the model instead of the model
        itself.
        """
        self._steps.advance()

    def set_samples(self, first: int, count: int) -> None:
        """Set which samples of the whole batch this process holds: `count` samples from `first` on.

        By default each process holds the same number of samples, in the order of the processes.
        """
        first, count = errors.integer("first", first, 0, (1 << 31) - 1), errors.positive_integer("count", count)
        self._steps.position = position_of(self.step, first, count)

    def coverage(self, *inputs: Any, **keywords: Any) -> Coverage:
        """Run the model once and return its products with their shares of the FLOPs.

        The model does not change: buffers, steps and random numbers are restored. Products that are
        computed by kernels of packages other than torch and mxnum are not counted.
        """
        is_lazy = any(isinstance(module, LazyModuleMixin) for module in self._model.modules())
        errors.require(not is_lazy, "model", "called once to initialize its lazy modules", "lazy")
        return covered(self._model, sites_of(self.modules), self._steps, inputs, keywords)

    def state_dict(self) -> dict[str, int]:
        """Return the seed and the step, to be saved beside the model's own state."""
        return {"seed": self.seed, "step": self.step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Set the seed and the step from `state_dict`, to continue a training run."""
        errors.require(
            set(state) == {"seed", "step"}, "state", "a mapping with the two keys 'seed' and 'step'", sorted(state)
        )
        step = errors.integer("step", state["step"], 0, STEPS - 1)
        self.seed = seed_of(state["seed"])
        self._steps.position = position_of(step, *self._steps.position[1:].tolist())
        for name, site in sites_of(self.modules).items():
            site.seed = module_seed(self.seed, name)

    def __str__(self) -> str:
        """Return the count of emulated modules by class, and why other modules are not emulated."""
        counts = Counter(_label(module) for module in self.modules.values())
        listed = ", ".join(f"{count} {name}" for name, count in counts.items())
        count = "1 module is" if len(self.modules) == 1 else f"{len(self.modules)} modules are"
        text = f"{count} emulated: {listed}." if listed else "No module is emulated."
        return f"{text} Left alone: {_reasons(self.left_alone)}." if self.left_alone else text


def _label(module: Any) -> str:
    """Return the name of a module's own class, and say so if its recipe rounds nothing in it."""
    cls = type(module)
    name = str(getattr(cls, "emulates", cls).__name__)  # a restored module has no `emulates`
    is_norm = getattr(cls, "_mx_kind", "") in ("norm", "layer_norm", "rms_norm")
    is_left = is_norm and not (module._mx.how.bf16 or module._mx.how.rounds_norms)
    return f"{name} (gamma and beta not rounded)" if is_left else name


@contextmanager
def step_kept(emulation: Emulation) -> Iterator[None]:
    """Restore the step when the context ends."""
    before = emulation._steps.position
    try:
        yield
    finally:
        emulation._steps.position = before


def emulate(
    model: nn.Module,
    recipe: Recipes = "mxfp8_e4m3",
    filter: Choice | None = None,
    *,
    attention: Choice = (),
    accumulate: str | None = None,
    gradient: str = "straight",
    seed: Any = 0,
    worker: int | None = None,
) -> Emulation:
    """Make the model compute as a low-precision machine would, in place.

    Parameters and `state_dict` do not change.

    Parameters
    ----------
    model
        The model, before it is compiled or wrapped for several processes. `emulate` supports
        torch's Linear, LayerNorm, RMSNorm, Embedding, Conv1d, Conv2d (of one group) and
        MultiheadAttention, and their subclasses that do not change the forward pass. It also
        supports the Conv1D class and most RMSNorm classes of `transformers`, and the classes given
        to `register`.
    recipe
        The formats and rounding of the operands: a `Recipe`, its name, a format, a mapping from
        patterns of module names to recipes, or a function of name and module. In a mapping such as
        ``{"head": None, "*": recipe}``, the first pattern that matches a module's name determines
        the recipe. A module whose recipe is None is not emulated. A recipe also applies to
        embeddings and to the products of MultiheadAttention. By contrast, NVIDIA's NVFP4 recipe
        keeps both in higher precision.
    filter
        The modules to emulate: patterns of names, or a function of name and module. By default all.
        A MultiheadAttention is emulated as a whole.
    attention
        The modules whose calls of `scaled_dot_product_attention` are emulated: patterns of names,
        or a function of name and module. If a chosen module does not call this function and
        contains no other chosen module, its forward pass raises ValueError.
    accumulate
        None: torch multiplies the rounded operands and sums the products. "block", "exact" and
        "sequential" define the order and rounding of sums (see `mxnum.Accumulate`). A matrix unit,
        or its name, also defines the order and rounding (see `mxnum.units`). If `accumulate` is
        None, the recipe may name a matrix unit.

        "amx" (from torch 2.9 on): Intel's AMX units multiply operands that are rounded to bfloat16
        or to formats with power-of-two scales. torch multiplies all other operands. AMX products
        are as exact as torch's and several times as fast, but AMX sums in another order.

        Convolutions are emulated only if their sums are those of torch or AMX units.
    gradient
        "straight": gradients pass through rounding unchanged. "clipped": the gradient of an element
        is zero if rounding *clamped* the element (see the glossary).
    seed
        Seed of stochastic rounding: an integer, or a `torch.Generator` that draws one.
    worker
        The rank of this process among the processes that share the parameters; by default, the rank
        in `torch.distributed`. The processes hold equally many samples of a batch, unless
        `Emulation.set_samples` sets other counts. Together, the processes use the random bits that
        one process would use for the whole batch.
    """
    _check_model(model)
    if _ATTRIBUTE in model.__dict__:
        raise ValueError(
            "Argument 'model' must not be emulated yet: call restore(), or set_recipe() to change recipes."
        )
    emulation = Emulation(seed_of(seed), worker_of(worker))
    emulation._model, emulation._sums = model, (accumulate, gradient)
    recipe_of, chosen, attends = _recipes(recipe), _choice("filter", filter), _choice("attention", attention)
    found: list[tuple[str, nn.Module, str, How]] = []
    # The names of submodules begin with these prefixes. The prefixes come from three kinds of
    # modules: emulated MultiheadAttention, all MultiheadAttention, and those that `attention`
    # selects.
    emulated: tuple[str, ...] = ()
    attentions: tuple[str, ...] = ()
    attending: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if isinstance(module, Emulated):
            raise ValueError(
                f"Argument 'model' must not have emulated modules, but {name!r} is one: restore() it first."
            )
        if name.startswith(emulated) or isinstance(module, ParametrizationList):
            continue
        is_part, within = name.startswith(attentions), f"{name}." if name else ""
        kind = kind_of(module)
        why = None if kind else _attention_reason(module)
        if kind in (None, "multihead_attention") and attends is not None and attends(name, module):
            if why not in (None, _UNNAMED):
                raise ValueError(f"Argument 'attention' must not name {name!r}, which {why}.")
            kind, why = kind or "attention", None
        if isinstance(module, nn.MultiheadAttention):
            attentions += (within,)
        is_inside = why == _UNNAMED and name.startswith(attending)
        if kind is None and (is_inside or (why is None and not _has_weights(module))):
            continue
        if chosen is not None and not chosen(name, module):
            continue
        wanted = recipe_of(name, module)
        if wanted is None:
            continue
        reason = why or (_PART if is_part else why_not(module, kind, accumulate or Recipe.of(wanted).unit))
        if reason is not None or kind is None:
            emulation.left_alone[name] = f"({type(module).__name__}) {reason}"
            continue
        found.append((name, module, kind, How(Recipe.of(wanted), accumulate, gradient)))
        emulated += (within,) * (kind == "multihead_attention")
        attending += (within,) * (kind == "attention")
    _check_patterns(recipe_of, chosen, "a module of the model")
    for pattern in _unused(attends):
        raise ValueError(f"Pattern {pattern!r} must match the name of a module that computes attention.")
    _check_shared((name, module, how) for name, module, _, how in found)
    for name, module, kind, how in found:  # after all checks, so that an error leaves the model unchanged
        enter(module, kind, Site(name, how, module_seed(emulation.seed, name), emulation._steps))
        emulation.modules[name] = module
    _leave_fast_paths(model, emulation)
    steps = emulation._steps
    hooks = model.register_forward_pre_hook(steps.count), model.register_forward_hook(steps.remember)
    emulation._hooks = [hook.id for hook in hooks]
    model.__dict__[_ATTRIBUTE] = emulation
    _warn(model, emulation.left_alone)
    return emulation


def emulation_of(model: nn.Module) -> Emulation:
    """Return the `Emulation` of a model."""
    errors.require_type(isinstance(model, nn.Module), "model", "a torch.nn.Module", type(model).__name__)
    found: Emulation | None = model.__dict__.get(_ATTRIBUTE)
    if found is None:
        raise ValueError("Argument 'model' must be a model that emulate() was called with.")
    return found


def restore(model: nn.Module) -> None:
    """Undo `emulate`: the model has its own classes again, and keeps its current parameters."""
    emulation = emulation_of(model)
    for name, module in emulation.modules.items():
        exchanged = "emulates" in type(module).__dict__
        accepted = f"a model whose module {name!r} still has the class that emulate() gave it"
        errors.require(exchanged, "model", accepted, type(module).__name__)
    for module in emulation.modules.values():
        leave(module)
    for fast, attribute, value in emulation._fast_paths:
        setattr(fast, attribute, value)
    for hook in emulation._hooks:
        model._forward_pre_hooks.pop(hook, None)
        model._forward_hooks.pop(hook, None)
    del model.__dict__[_ATTRIBUTE]


def set_recipe(model: nn.Module, recipe: Recipes | None) -> None:
    """Replace the recipes of an emulated model. `recipe` takes the same values as in `emulate`.

    With the recipe None, and in modules that no pattern matches, torch computes without rounding.
    """
    emulation = emulation_of(model)
    recipe_of = _recipes({} if recipe is None else recipe)
    wanted = {name: recipe_of(name, module) for name, module in emulation.modules.items()}
    _check_patterns(recipe_of, None, "an emulated module")
    sums = emulation._sums
    hows = {name: How(Recipe()) if value is None else How(Recipe.of(value), *sums) for name, value in wanted.items()}
    _check_shared((name, module, hows[name]) for name, module in emulation.modules.items())
    for name, site in sites_of(emulation.modules).items():
        site.how = hows[name]


def _check_shared(found: Iterable[tuple[str, nn.Module, How]]) -> None:
    """Raise ValueError if two modules share a weight but round it differently."""
    seen: dict[int, tuple[str, Operand]] = {}
    for name, module, how in found:
        for weight in module.parameters(recurse=isinstance(module, nn.MultiheadAttention)):
            operand = how.recipe.weights
            if weight.ndim < 2 or operand.format is None:
                continue
            first, before = seen.setdefault(id(weight), (name, operand))
            if before != operand:
                raise ValueError(
                    f"Argument 'recipe' must round the weight that {first!r} and {name!r} share in the same way in "
                    f"both modules, not to {before} and to {operand}."
                )


def _attention_reason(module: nn.Module) -> str | None:
    """Return why a module's attention is not emulated, or None if the module has none."""
    forward = inspect.unwrap(getattr(type(module), "forward", nn.Module.forward))  # a ScriptModule has no forward
    names = getattr(getattr(forward, "__code__", None), "co_names", ())
    if "ALL_ATTENTION_FUNCTIONS" in names:  # in `transformers`, the model's configuration names the attention function
        way = getattr(getattr(module, "config", None), "_attn_implementation", None) or "eager"
        if "sdpa" not in way:
            return (
                f"computes attention by {way!r}, which is never emulated (call set_attn_implementation('sdpa') first)"
            )
        return _UNNAMED
    known = getattr(forward, "__globals__", {})
    is_called = any(known.get(name) is nn.functional.scaled_dot_product_attention for name in names)
    return _UNNAMED if is_called or "scaled_dot_product_attention" in names else None


def _has_weights(module: nn.Module) -> bool:
    """Return True if a module has parameters of its own.

    The packed parameters of torch's quantized modules count as parameters too.
    """
    return next(module.parameters(recurse=False), None) is not None or hasattr(module, "_packed_params")


def _may_multiply(module: nn.Module) -> bool:
    """Return True if a module itself has weights of two or more axes, except embedding tables."""
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return False
    parameters = [p for name, p in module.named_parameters(recurse=False) if not _TABLE.search(name)]
    return hasattr(module, "_packed_params") or any(is_lazy(p) or p.squeeze().ndim > 1 for p in parameters)


def _warn(model: nn.Module, left_alone: Mapping[str, str]) -> None:
    """Warn about modules that are not emulated but may multiply by their weights.

    The warning omits parts of attention that the user left out on purpose.
    """
    multiplying = {
        name: why
        for name, why in left_alone.items()
        if not why.endswith(_PART) and _may_multiply(model.get_submodule(name))
    }
    if multiplying:
        warnings.warn(
            f"emulate() did not emulate modules that may multiply by their weights: {_reasons(multiplying)}. If "
            "this is intended, exclude them by filter= or the recipe None; emulation.coverage(inputs) shows their "
            "share of the FLOPs.",
            stacklevel=3,
        )


def _reasons(left_alone: Mapping[str, str]) -> str:
    """Return text that lists the modules that are not emulated, grouped by reason."""
    alike: dict[str, list[str]] = {}
    for name, why in left_alone.items():
        alike.setdefault(why, []).append(name)
    lines = {why: list(dict.fromkeys(patterns(names).values())) for why, names in alike.items()}
    return "; ".join(f"{'each of ' * (len(names) > 1)}{', '.join(names)} {why}" for why, names in lines.items())


def _check_model(model: Any) -> None:
    errors.require_type(isinstance(model, nn.Module), "model", "a torch.nn.Module", type(model).__name__)
    wrapped = hasattr(model, "_orig_mod") or isinstance(model, nn.parallel.DistributedDataParallel)
    accepted = "emulated before it is compiled or wrapped"
    errors.require(not wrapped, "model", accepted, type(model).__name__)


class _Patterns:
    """A mapping from patterns of names to values. The first matching pattern sets the value."""

    def __init__(self, values: Mapping[str, Any]):
        self.values, self.used, self.deciding = dict(values), set[str](), set[str]()

    def __call__(self, name: str, _: Any) -> Any:
        fitting = [pattern for pattern in self.values if fnmatchcase(name, pattern)]
        self.used.update(fitting)
        self.deciding.update(fitting[:1])
        return self.values[fitting[0]] if fitting else None


def _unused(chosen: Any) -> list[str]:
    return [p for p in chosen.values if p not in chosen.used] if isinstance(chosen, _Patterns) else []


def _check_patterns(recipe_of: Any, chosen: Any, what: str) -> None:
    """Raise ValueError if a pattern matches no module, or only modules of earlier patterns."""
    for pattern in _unused(recipe_of) + _unused(chosen):
        raise ValueError(f"Pattern {pattern!r} must match the name of {what}.")
    for pattern in recipe_of.values if isinstance(recipe_of, _Patterns) else ():
        if pattern in recipe_of.used - recipe_of.deciding - {"*"}:
            raise ValueError(
                f"Pattern {pattern!r} must come before the patterns that match the same modules, because the first "
                "matching pattern sets the recipe."
            )


def _recipes(recipe: Any) -> Callable[[str, nn.Module], Any]:
    if isinstance(recipe, Mapping):
        return _Patterns({pattern: None if each is None else Recipe.of(each) for pattern, each in recipe.items()})
    if callable(recipe):
        function: Callable[[str, nn.Module], Any] = recipe
        return function
    one = Recipe.of(recipe)
    return lambda name, module: one


def _choice(argument: str, choice: Any) -> Any:
    """Return a function that is True for the chosen modules; None if all modules are chosen."""
    is_class = isinstance(choice, type)
    if choice is None or (callable(choice) and not is_class):
        return choice
    accepted = isinstance(choice, Iterable) and not is_class
    errors.require_type(accepted, argument, "patterns of names or a function", choice)
    patterns = [choice] if isinstance(choice, str) else list(choice)
    for pattern in patterns:
        errors.require_type(isinstance(pattern, str), argument, "patterns of names or a function", pattern)
    return _Patterns(dict.fromkeys(patterns, True))


def _leave_fast_paths(model: nn.Module, emulation: Emulation) -> None:
    """Disable the fast paths of torch's encoders that contain emulated modules.

    In evaluation mode, a fast path would bypass these modules.
    """
    for module in model.modules():
        attribute = next((name for kind, name in _FAST_PATHS if isinstance(module, kind)), None)
        if attribute is not None and any(isinstance(part, Emulated) for part in module.modules()):
            emulation._fast_paths.append((module, attribute, getattr(module, attribute)))
            setattr(module, attribute, False)
