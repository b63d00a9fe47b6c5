"""Recipes: the tensors that training rounds, and how. Every program that trains reads them."""

from mxnum.recipe.definition import BFLOAT16, FLOAT32, OPERANDS, Operand, Recipe

__all__ = ["BFLOAT16", "FLOAT32", "OPERANDS", "Operand", "Recipe"]
