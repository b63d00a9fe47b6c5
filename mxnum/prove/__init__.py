"""Proofs that an implementation is the definition, for all inputs, or a counterexample."""
