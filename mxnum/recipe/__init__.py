"""What is rounded where, when a model is trained in low precision: one description for every program that does it."""

from mxnum.recipe.definition import BFLOAT16, FLOAT32, OPERANDS, Operand, Recipe

__all__ = ["BFLOAT16", "FLOAT32", "OPERANDS", "Operand", "Recipe"]
