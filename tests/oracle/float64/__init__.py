"""Slow models in numpy float64, from the equations alone: what the engine is tested with."""
