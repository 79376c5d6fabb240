"""Question formation and tense reinflection: tasks whose training data fit a hierarchical and a linear rule.

The generalisation sets show which of the two a model has learned (McCoy et al. 2020; DuSell & Cotterell 2025).

- ``TRANSFORMATIONS``: the tasks by name, each a ``Transformation`` of sources into targets.
- ``prepare_transformation`` writes a prepared folder with ``TransformationSizes``.
"""

from structattn.data.transformations.prepare import TransformationSizes, prepare_transformation
from structattn.data.transformations.rules import TRANSFORMATIONS, Transformation

__all__ = ["TRANSFORMATIONS", "Transformation", "TransformationSizes", "prepare_transformation"]
